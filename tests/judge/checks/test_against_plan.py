"""What a plan says of its logs, and runs of each other, on made-up campaigns; the cheats on a real one are in
test_cheats.py."""

import json

import pytest

from tests.judge.campaigns import MINI, campaign, plan
from train_bench.judge.tree import judge_folder


def judge(folder):
    return judge_folder(folder, ruleset_name=None, rcp_folders=[folder / "none"])


def kinds(folder):
    judged = judge(folder)
    return {finding.check for verdict in judged.verdicts for finding in verdict.findings}


def jobs(**launcher):
    return [{"index": index, "seed": 1000 + index, "launcher_config": launcher} for index in range(MINI.runs)]


def all_at_once(folder):
    campaign(folder, ["good"] * MINI.runs)
    for index in range(MINI.runs):
        path = folder / f"result_{index}.txt"
        lines = [json.loads(line.partition(":::MLLOG ")[2]) for line in path.read_text().splitlines()]
        for line in lines:
            line["time_ms"] -= 3_600_000 * index
        path.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))


def test_runs_of_a_sequential_campaign_that_overlap_are_found(tmp_path):
    plan(tmp_path, jobs=jobs(name="torchrun"))
    all_at_once(tmp_path)
    assert "overlap" in kinds(tmp_path)


def test_tasks_of_an_array_may_run_side_by_side(tmp_path):
    plan(tmp_path, jobs=jobs(name="slurm", array=True, parallel=2))
    all_at_once(tmp_path)
    assert "overlap" not in kinds(tmp_path)


def test_a_run_that_the_plan_does_not_have_is_found(tmp_path):
    plan(tmp_path, jobs=jobs()[:4])
    campaign(tmp_path, ["good"] * MINI.runs)
    judged = judge(tmp_path)
    assert not judged.score.valid
    assert any("no run 4" in finding.message for finding in judged.verdicts[4].findings)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"jobs": [*jobs()[:4], {**jobs()[4], "precision": "bf16"}]},
            "differ in more values than their seeds",
        ),
        ({"jobs": [job | {"nodes": 1, "nproc_per_node": 4} for job in jobs()]}, "its runs have 4 ranks"),
        ({"shared": {"launcher_config": {"nodes": 2, "nproc_per_node": 4}}}, "its runs have 8 ranks"),
        ({"shared": {"launcher_config": {"name": "horovod"}}}, "its runs have 'horovod'"),
        ({"jobs": [job | {"launcher": "horovod"} for job in jobs()]}, "its runs have 'horovod'"),
        ({"request": {"seed": 1}}, "do not follow from seed=1"),
        (
            {
                "jobs": [job | {"target": {"thresholds": [{"value": 0.5}]}} for job in jobs()],
                "ruleset_digest": MINI.digest,
            },
            "the target of its runs is not that of",
        ),
    ],
)
def test_a_plan_that_contradicts_itself_is_no_result_of_a_strict_round(changes, said, tmp_path):
    plan(tmp_path, **changes)
    campaign(tmp_path, ["good"] * MINI.runs)
    score = judge(tmp_path).score
    assert not score.valid
    assert any(said in reason for reason in score.reasons)


def test_a_plan_of_earlier_rules_may_have_had_another_target(tmp_path):
    earlier = [job | {"target": {"thresholds": [{"value": 0.5}]}} for job in jobs()]
    plan(tmp_path, jobs=earlier, ruleset_digest="of earlier rules")
    campaign(tmp_path, ["good"] * MINI.runs)
    assert judge(tmp_path).score.valid


STRANGE = [None, True, -1, "x", [], {}, [None], {"index": []}, 10**400, 0.1]


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: repr(value)[:8])
def test_a_plan_of_any_content_is_judged(strange, tmp_path):
    campaign(tmp_path, ["good"] * MINI.runs)
    (tmp_path / "record_0.json").write_text(json.dumps(strange))
    for name in ("jobs", "created", "request", "world_size", "launcher", "seeds"):
        plan(tmp_path, **{name: strange})
        json.dumps(judge(tmp_path).as_json(), allow_nan=False)
    for name in ("index", "seed", "config", "announcement", "target", "launcher_config", "nodes"):
        plan(tmp_path, jobs=[job | {name: strange, "nproc_per_node": strange} for job in jobs()])
        json.dumps(judge(tmp_path).as_json(), allow_nan=False)
