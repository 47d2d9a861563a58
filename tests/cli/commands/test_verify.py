"""What `train-bench verify` refuses before any rank is started; what it finds is in test_end_to_end.py."""

import pytest

from tests.fake_campaigns import Diary, FakeLauncher, begin, keep_weights, make, run_all
from train_bench.cli.commands import verify
from train_bench.errors import RequestError


@pytest.mark.parametrize("tolerance", ["nan", "inf", "-1"])
def test_a_tolerance_that_is_none_is_refused(begun, tolerance):
    with pytest.raises(RequestError, match="it is a number from 0 on"):
        verify.main([str(begun.jobs[0].folder), f"--tolerance={tolerance}"])


def test_no_data_are_written_where_the_plan_of_somebody_else_says(tmp_path, capsys):
    folder, data = tmp_path / "theirs", tmp_path / "not mine" / "data"
    plan = make(f"output={folder}", "runs=1", f"data_dir='{data}'")
    begin(plan)
    run_all(plan, FakeLauncher(), Diary(), retry_failed=False)
    keep_weights(folder)
    assert verify.main([str(folder)]) == 2
    assert f"benchmark=resnet_mini 'data_dir={data}' here" in capsys.readouterr().err
    assert not data.parent.exists()
