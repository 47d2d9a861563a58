"""The log of a run that was started again: what was lost does not count, its time does, and it is no closed result."""

import json

import pytest

from tests.judge.campaigns import MINI, campaign, plan
from tests.judge.campaigns import log_text as good
from train_bench.judge.tree import judge_folder
from train_bench.logs.log import read
from train_bench.logs.restarts import restarts_of, without_lost_work


def line(key, time_ms, value=None, **metadata):
    told = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps(told | {"metadata": metadata})


def log(tmp_path, *lines):
    path = tmp_path / "result_0.txt"
    path.write_text("\n".join(lines) + "\n")
    return read(path)


def block(number, begin):
    return (
        line("block_start", begin, first_epoch_num=number),
        line("eval_accuracy", begin + 9_000, number / 10, epoch_num=number),
        line("eval_stop", begin + 10_000, epoch_num=number),
    )


FAILED = {"time_ms": 27_000, "deaths": "rank 0 killed by SIGKILL", "planted": None}

STARTED_AGAIN = (
    line("run_start", 0),
    *block(1, 0),
    line("checkpoint_start", 10_000),
    line("checkpoint_stop", 12_000),
    *block(2, 12_000),
    line("block_start", 22_000, first_epoch_num=3),
    line("run_failed", 30_000, FAILED),
    line("run_restored", 33_000, {"evaluations": 1, "samples": 100}),
    *block(2, 33_000),
    line("run_stop", 43_000, status="success"),
)


def test_work_that_was_lost_is_left_out(tmp_path):
    kept = without_lost_work(log(tmp_path, *STARTED_AGAIN)).events
    assert [event.metadata["epoch_num"] for event in kept if event.key == "eval_accuracy"] == [1, 2]
    assert sum(event.key == "block_start" for event in kept) == 2
    assert [event.key for event in kept if event.key.startswith("run_")] == [
        *("run_start", "run_failed", "run_restored", "run_stop")
    ]


def test_time_is_divided_among_what_it_was_spent_on(tmp_path):
    told = restarts_of(without_lost_work(log(tmp_path, *STARTED_AGAIN))).as_json()
    assert told["failures"] == told["checkpoints"] == 1
    assert (told["seconds"], told["lost_seconds"], told["restart_seconds"]) == (43, 15, 6)
    assert (told["checkpoint_seconds"], told["useful_seconds"], told["interval"]) == (2, 20, 10)
    assert told["goodput"] == pytest.approx(20 / 43)


def test_a_failure_while_a_run_is_restored_destroys_no_more_work(tmp_path):
    at = STARTED_AGAIN.index(line("run_failed", 30_000, FAILED))
    twice = (
        *STARTED_AGAIN[: at + 1],
        line("run_failed", 31_000, FAILED | {"time_ms": 30_000}),
        *STARTED_AGAIN[at + 1 :],
    )
    told = restarts_of(log(tmp_path, *twice)).as_json()
    assert (told["failures"], told["lost_seconds"], told["restart_seconds"]) == (2, 15, 6)
    assert told["restart"] == 3


def test_a_run_without_checkpoints_and_failures_has_nothing_to_tell(tmp_path):
    content = log(tmp_path, *good("good", index=0).splitlines())
    assert without_lost_work(content) is content
    assert restarts_of(content) is None


@pytest.mark.parametrize(
    "value", [None, [], {"evaluations": "1"}, {"evaluations": True}, {"evaluations": 10**20}]
)
def test_a_restoration_that_says_nothing_hides_nothing(tmp_path, value):
    content = log(tmp_path, line("run_start", 0), *block(1, 0), line("run_restored", 11_000, value))
    assert without_lost_work(content).events == content.events


def judged(folder):
    return judge_folder(folder, ruleset_name=MINI.ruleset, rcp_folders=[])


@pytest.mark.parametrize("with_plan", [True, False])
def test_a_run_that_was_started_again_is_no_closed_result(tmp_path, with_plan):
    campaign(tmp_path, ["good"] * 5)
    if with_plan:
        plan(tmp_path)
    assert "restarts" not in {one.check for verdict in judged(tmp_path).verdicts for one in verdict.findings}
    path = tmp_path / "result_2.txt"
    lines = path.read_text().splitlines()
    at = next(number for number, text in enumerate(lines) if '"eval_stop"' in text) + 1
    time_ms = json.loads(lines[at - 1].removeprefix(":::MLLOG "))["time_ms"]
    again = [
        line("run_failed", time_ms, FAILED),
        line("run_restored", time_ms, {"evaluations": 1, "samples": 0}),
    ]
    path.write_text("\n".join([*lines[:at], *again, *lines[at:]]) + "\n")
    judgement = judged(tmp_path)
    found = [(one.check, one.grade) for one in judgement.verdicts[2].findings]
    assert ("restarts", "breaks") in found
    assert not judgement.score.valid
    assert "result_2.txt breaks the rules" in " ".join(judgement.score.reasons)


@pytest.mark.parametrize(("asked", "broken"), [("kill every 60 s", True), (["odd"], True), (None, False)])
def test_faults_that_were_planned_are_no_closed_result_though_none_struck(tmp_path, asked, broken):
    plan(campaign(tmp_path, ["good"] * 5), request={"faults": asked})
    judgement = judged(tmp_path)
    assert any("The plan has fault injection" in reason for reason in judgement.score.reasons) is broken
    assert [one.grade for one in judgement.findings if one.check == "faults"] == ["breaks"] * broken
