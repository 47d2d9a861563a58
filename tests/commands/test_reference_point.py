"""Reference runs become a record that the convergence check reads."""

import json

import pytest

from tests.commands.conftest import Diary, FakeLauncher, judged, make
from train_bench import campaign, files, reference_point
from train_bench.commands import rcp as rcp_command
from train_bench.errors import LogError, RequestError
from train_bench.judge import rcp
from train_bench.judge.tree import judge_folder
from train_bench.plan import discover
from train_bench.progress import Unit
from train_bench.rules import ruleset

SYSTEM = {"platform": "a machine", "packages": {"torch": "2.0"}}


@pytest.fixture
def reference_runs(tmp_path):
    """Ten runs, begun and not run; all of them would converge."""
    plan = make(f"output={tmp_path / 'campaign'}", reference_runs=True)
    campaign.begin(plan)
    files.write_json(plan.jobs[0].folder / "system.json", SYSTEM)
    return plan


def run(plan, **behaviours):
    campaign.run_all(plan, FakeLauncher(**behaviours), Diary(), retry_failed=False)


def test_ten_converged_runs_are_a_point_that_the_check_finds(reference_runs, tmp_path):
    run(reference_runs)
    folder = reference_runs.jobs[0].folder
    path = reference_point.add(
        judged(reference_runs), folder, tmp_path / "rcp", [tmp_path / "rcp"], replace=True
    )
    record = json.loads(path.read_text())["resnet_mini_ref_64"]
    assert record["Epochs to converge"] == [6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert (record["BS"], record["When"], record["Creator"]) == (64, "2026-11-21", "local")
    assert record["Platform"] == "a machine, torch 2.0, fp32"
    assert "global_batch_size" not in record["Hyperparams"]
    assert "lars_epsilon" not in record["Hyperparams"]
    (point,) = rcp.load(ruleset.load("mini-1.0").benchmark("resnet_mini"), [tmp_path / "rcp"])
    assert (point.batch_size, point.mean, point.count) == (64, 10.5, 10)


@pytest.mark.parametrize("unit", list(Unit))
def test_a_point_can_be_made_and_read_in_every_unit(unit, reference_runs, tmp_path):
    run(reference_runs)
    folder = reference_runs.jobs[0].folder
    plan = files.read_json(folder / "plan.json")
    plan["shared"]["unit"] = unit.value
    runs = judged(reference_runs)
    files.write_json(folder / "plan.json", plan)
    reference_point.add(runs, folder, tmp_path / "rcp", [tmp_path / "rcp"], replace=True)
    (point,) = rcp.load(ruleset.load("mini-1.0").benchmark("resnet_mini"), [tmp_path / "rcp"])
    assert (point.mean, point.count) == (10.5, 10)


def test_a_point_keeps_the_seeds_of_its_runs_and_their_campaign_is_known_again(reference_runs, tmp_path):
    run(reference_runs)
    folder = reference_runs.jobs[0].folder
    reference_point.add(judged(reference_runs), folder, tmp_path / "rcp", [tmp_path / "rcp"], replace=False)
    checks = {
        finding.check
        for finding in judge_folder(folder, ruleset_name=None, rcp_folders=[tmp_path / "rcp"]).findings
    }
    assert checks == {"reference_seeds", "points_digest"}, "the point has come since the plan was made"


def test_the_seeds_of_reference_runs_are_never_those_of_a_campaign_with_the_same_base():
    of_reference = {job.seed for job in make("seed=1", reference_runs=True).jobs}
    of_campaign = {job.seed for job in make("seed=1", "runs=20").jobs}
    assert (len(of_reference), of_reference & of_campaign) == (10, set())


def shipped(tmp_path):
    """A folder of points with one at the batch size of the reference runs."""
    path = tmp_path / "rcp" / "mini-1.0" / "resnet.json"
    path.parent.mkdir(parents=True)
    record = {"Benchmark": "resnet_mini", "BS": 64, "When": "2026-11-20", "Epochs to converge": [2, 2, 3]}
    path.write_text(json.dumps({"resnet_mini_ref_64": record}))
    return path


def test_a_point_that_is_there_is_refused_before_any_run_unless_it_may_be_replaced(reference_runs, tmp_path):
    path = shipped(tmp_path)
    with pytest.raises(
        RequestError, match=r"resnet.json has the point resnet_mini_ref_64 .* replace_point=true"
    ):
        reference_point.refuse(reference_runs, [tmp_path / "rcp"], replace=False)
    reference_point.refuse(reference_runs, [tmp_path / "rcp"], replace=True)
    other = make("benchmark=resnet_mini_bs32", reference_runs=True)
    reference_point.refuse(other, [tmp_path / "rcp"], replace=False)
    assert "2026-11-20" in path.read_text()


def test_a_point_that_came_while_the_reference_runs_went_on_stays_too(reference_runs, tmp_path):
    run(reference_runs)
    path = shipped(tmp_path)
    before = path.read_text()
    with pytest.raises(RequestError, match="replace_point=true"):
        reference_point.add(
            judged(reference_runs),
            reference_runs.jobs[0].folder,
            tmp_path / "rcp",
            [tmp_path / "rcp"],
            replace=False,
        )
    assert path.read_text() == before


def test_another_task_is_refused_as_a_point_before_any_run(tmp_path):
    changed = make("benchmark.data.permute_labels=true", reference_runs=True)
    with pytest.raises(RequestError, match=r"leave out benchmark\.data\.permute_labels=true"):
        reference_point.refuse(changed, [tmp_path / "rcp"], replace=False)


def test_the_verb_itself_leaves_the_shipped_point_alone(tmp_path, monkeypatch, capsys):
    """As the README had it, this wrote over the point of resnet_mini after ten runs."""
    monkeypatch.setattr(discover, "rcp_folders", lambda: (tmp_path / "rcp",))
    before = shipped(tmp_path).read_text()
    assert rcp_command.main([f"output={tmp_path / 'runs'}"]) == 2
    assert "has the point resnet_mini_ref_64 already, of 2026-11-20" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    assert (tmp_path / "rcp/mini-1.0/resnet.json").read_text() == before


def test_a_point_takes_the_place_of_one_at_the_same_batch_size_and_of_no_other(reference_runs, tmp_path):
    run(reference_runs)
    path = tmp_path / "rcp" / "mini-1.0" / "resnet.json"
    path.parent.mkdir(parents=True)
    others = {
        "old": {"Benchmark": "resnet_mini", "BS": 128, "Epochs to converge": [1]},
        "resnet_mini_ref_64": {"Benchmark": "resnet_mini", "BS": 64, "Epochs to converge": [2, 2, 3]},
    }
    path.write_text(json.dumps(others))
    reference_point.add(
        judged(reference_runs),
        reference_runs.jobs[0].folder,
        tmp_path / "rcp",
        [tmp_path / "rcp"],
        replace=True,
    )
    records = json.loads(path.read_text())
    assert list(records) == ["resnet_mini_ref_64", "old"]
    assert records["old"] == others["old"]
    assert len(records["resnet_mini_ref_64"]["Epochs to converge"]) == 10


def test_runs_of_which_one_missed_the_target_are_no_point(reference_runs, tmp_path):
    run(reference_runs, run_4="miss")
    with pytest.raises(LogError, match=r"gives no reference convergence point. result_4.txt: The target"):
        reference_point.add(
            judged(reference_runs),
            reference_runs.jobs[0].folder,
            tmp_path / "rcp",
            [tmp_path / "rcp"],
            replace=True,
        )
    assert not (tmp_path / "rcp").exists()


def test_fewer_runs_than_planned_are_no_point(reference_runs, tmp_path):
    run(reference_runs)
    (reference_runs.jobs[0].folder / "result_9.txt").unlink()
    with pytest.raises(LogError, match="9 of the at least 10 runs"):
        reference_point.add(
            judged(reference_runs),
            reference_runs.jobs[0].folder,
            tmp_path / "rcp",
            [tmp_path / "rcp"],
            replace=True,
        )
