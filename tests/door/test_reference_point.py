"""Reference runs become a record that the convergence check reads."""

import json

import pytest

from tests.door.conftest import Diary, FakeLauncher, judged, make
from train_bench import campaign, papers, reference_point
from train_bench.errors import LogError
from train_bench.judge import rcp
from train_bench.progress import Unit
from train_bench.rules import ruleset

SYSTEM = {"platform": "a machine", "packages": {"torch": "2.0"}}


@pytest.fixture
def reference_runs(tmp_path):
    """Ten runs, begun and not run; all of them would converge."""
    plan = make(f"output={tmp_path / 'campaign'}", reference_runs=True)
    campaign.begin(plan)
    papers.write_json(plan.jobs[0].folder / "system.json", SYSTEM)
    return plan


def run(plan, **behaviours):
    campaign.run_all(plan, FakeLauncher(**behaviours), Diary(), retry_failed=False)


def test_ten_converged_runs_are_a_point_that_the_check_finds(reference_runs, tmp_path):
    run(reference_runs)
    folder = reference_runs.jobs[0].folder
    path = reference_point.add(judged(reference_runs), folder, tmp_path / "rcp")
    record = json.loads(path.read_text())["resnet_mini_ref_64"]
    assert record["Epochs to converge"] == [6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert (record["BS"], record["When"], record["Creator"]) == (64, "2026-11-21", "local")
    assert record["Platform"] == "a machine, torch 2.0, fp32"
    assert "global_batch_size" not in record["Hyperparams"]
    assert "lars_epsilon" not in record["Hyperparams"]
    (point,) = rcp.load(ruleset.load("mini-1.0").benchmark("resnet_mini"), tmp_path / "rcp")
    assert (point.batch_size, point.mean, point.count) == (64, 10.5, 10)


@pytest.mark.parametrize("unit", list(Unit))
def test_a_point_can_be_made_and_read_in_every_unit(unit, reference_runs, tmp_path):
    run(reference_runs)
    folder = reference_runs.jobs[0].folder
    plan = papers.read_json(folder / "plan.json")
    plan["jobs"][0]["unit"] = unit.value
    runs = judged(reference_runs)
    papers.write_json(folder / "plan.json", plan)
    reference_point.add(runs, folder, tmp_path / "rcp")
    (point,) = rcp.load(ruleset.load("mini-1.0").benchmark("resnet_mini"), tmp_path / "rcp")
    assert (point.mean, point.count) == (10.5, 10)


def test_a_point_takes_the_place_of_one_at_the_same_batch_size_and_of_no_other(reference_runs, tmp_path):
    run(reference_runs)
    path = tmp_path / "rcp" / "mini-1.0" / "resnet.json"
    path.parent.mkdir(parents=True)
    others = {
        "old": {"Benchmark": "resnet_mini", "BS": 128, "Epochs to converge": [1]},
        "resnet_mini_ref_64": {"Benchmark": "resnet_mini", "BS": 64, "Epochs to converge": [2]},
    }
    path.write_text(json.dumps(others))
    reference_point.add(judged(reference_runs), reference_runs.jobs[0].folder, tmp_path / "rcp")
    records = json.loads(path.read_text())
    assert list(records) == ["resnet_mini_ref_64", "old"]
    assert records["old"] == others["old"]
    assert len(records["resnet_mini_ref_64"]["Epochs to converge"]) == 10


def test_runs_of_which_one_missed_the_target_are_no_point(reference_runs, tmp_path):
    run(reference_runs, run_4="miss")
    with pytest.raises(LogError, match=r"gives no reference convergence point. result_4.txt: The target"):
        reference_point.add(judged(reference_runs), reference_runs.jobs[0].folder, tmp_path / "rcp")
    assert not (tmp_path / "rcp").exists()


def test_fewer_runs_than_planned_are_no_point(reference_runs, tmp_path):
    run(reference_runs)
    (reference_runs.jobs[0].folder / "result_9.txt").unlink()
    with pytest.raises(LogError, match="9 of the at least 10 runs"):
        reference_point.add(judged(reference_runs), reference_runs.jobs[0].folder, tmp_path / "rcp")
