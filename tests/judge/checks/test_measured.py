"""The quality of a log against what the evaluator of its campaign found: cheats, and whether they are found."""

import json

import pytest

from tests.judge.campaigns import MINI, plan
from tests.judge.checks.test_campaign_checks import findings_of
from tests.judge.checks.test_cheats import edit_log
from tests.judge.checks.test_observed import PROGRAM, folder, judged, observe, sentence  # noqa: F401

FILES = {"/secret/evaluate.py": "e" * 64, "/secret/labels.npy": "a" * 64}


def logged(campaign, index):
    """Qualities that a log has."""
    events = (
        json.loads(line.partition(":::MLLOG ")[2])
        for line in (campaign / f"result_{index}.txt").read_text().splitlines()
    )
    return [event["value"] for event in events if event["key"] == "eval_accuracy"]


@pytest.fixture
def measured(folder):  # noqa: F811
    """A campaign of a command with an evaluator, which gave what the logs have."""
    with_evaluator(folder)
    return folder


def with_evaluator(folder, **of_job):  # noqa: F811
    evaluator = {"argv": ["python", "evaluate.py", "{handed}"], "cwd": "/secret"}
    jobs = [
        {"index": index, "seed": 1000 + index, "evaluator": evaluator, **of_job} for index in range(MINI.runs)
    ]
    plan(folder, **PROGRAM | {"points_digest": None, "changes": []}, world_size=1, jobs=jobs)
    for index in range(MINI.runs):
        found(folder, index)


def found(folder, index, *, files=FILES, hidden=True, change=lambda evaluations: evaluations):  # noqa: F811
    evaluations = [
        {"metrics": {"top1": value}, "handed": f"{index}.{number}", "bytes": 9, "seconds": 2.0}
        for number, value in enumerate(logged(folder, index))
    ]
    observe(folder, index, evaluator={"files": files, "hidden": hidden, "evaluations": change(evaluations)})


def test_an_honest_run_is_valid_and_says_who_measured(measured):
    one = judged(measured)
    assert one.score.valid, one.score.reasons
    assert one.score.measured_by.startswith(
        "the evaluator python evaluate.py '{handed}', in a process of its own"
    )
    verified, unknown = sentence(measured)
    assert "from files which the program could not read" in verified
    assert unknown.startswith("that it trained (answers or weights that it had before look alike)")
    found(measured, 1, hidden=False)
    assert "which the program's user can read" in judged(measured).score.measured_by


def forged_quality(folder):  # noqa: F811
    def better(line):
        return line | {"value": line["value"] + 0.001} if line["key"] == "eval_accuracy" else line

    edit_log(folder / "result_2.txt", better)


def asked_more_often(folder):  # noqa: F811
    found(folder, 2, change=lambda each: [*each, each[-1]])


def asked_less_often(folder):  # noqa: F811
    found(folder, 2, change=lambda each: each[:-1])


def labels_edited_meanwhile(folder):  # noqa: F811
    found(folder, 2, change=lambda each: [*each[:-1], each[-1] | {"changed": ["/secret/labels.npy"]}])


def record_removed(folder):  # noqa: F811
    observe(folder, 2)


def evaluator_replaced_between_runs(folder):  # noqa: F811
    found(folder, 2, files=FILES | {"/secret/evaluate.py": "f" * 64})


def answers_of_another_run(folder):  # noqa: F811
    found(folder, 2, change=lambda each: [*each[:-1], each[-1] | {"handed": "1.0"}])


# The others are in the table of tests/judge/test_twenty_cheats.py.
CHEATS = [
    (record_removed, "quality", "breaks", "no record of what it found"),
    (evaluator_replaced_between_runs, "evaluator", "review", "/secret/evaluate.py of the evaluator differs"),
]


@pytest.mark.parametrize(("cheat", "check", "grade", "words"), CHEATS)
def test_a_quality_that_the_evaluator_did_not_give_is_found(measured, cheat, check, grade, words):
    cheat(measured)
    told = findings_of(judged(measured), check)
    assert [one for one, message in told if words in message] == [grade], told


def test_the_time_of_the_evaluator_counts_unless_the_plan_leaves_it_out(measured):
    whole = judged(measured).score
    with_evaluator(measured, evaluator_off_clock=True)
    without = judged(measured).score
    assert without.valid, without.reasons
    for before, after, index in zip(whole.runs, without.runs, range(MINI.runs), strict=True):
        assert before.minutes - after.minutes == pytest.approx(2 / 60 * len(logged(measured, index)))
