"""A loop with Accelerate needs no adapter: it has begun torch.distributed."""

import pytest

from tests.own_trainer import trained


@pytest.mark.full
def test_on_two_ranks_it_reaches_the_target_as_the_reference_does(tmp_path):
    trained.output("accelerate_loop.py", str(tmp_path / "out"), "1", ranks=2)
    assert trained.accuracies(tmp_path / "out")[-1] >= 0.73
