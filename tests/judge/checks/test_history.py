"""How runs came about: attempts, file times, and the order of runs."""

import json
import os
from datetime import UTC, datetime

import pytest

from tests.judge.campaigns import plan
from tests.judge.checks.test_campaign_checks import PLANNED, attempt, findings_of, folder, judged
from tests.judge.checks.test_observed import times

assert folder  # a fixture


def iso(time_ms):
    return datetime.fromtimestamp(time_ms // 1000, UTC).isoformat()


def planned_before(folder, **changes):
    """The plan, made an hour before the first run."""
    plan(folder, **PLANNED, created=iso(times(folder, 0)[0] - 3_600_000), **changes)


def lasted(folder, run, before=10.0, after=5.0):
    """The record of an attempt that began so many seconds before `run_start` and ended so many after `run_stop`."""
    started, stopped = times(folder, run)
    attempt(folder, run, started=iso(started - before * 1000), ended=iso(stopped + after * 1000))


def found(folder):
    judgement = judged(folder)
    return {
        kind: listed
        for kind in ("clock", "file_time", "order", "declared")
        if (listed := findings_of(judgement, kind))
    }


@pytest.mark.parametrize(("before", "after"), [(10, 5), (0, 0), (5000, 5000), (-50, 55), (-2, 0)])
def test_a_run_within_its_attempt_is_no_finding(folder, before, after):
    lasted(folder, 2, before, after)
    assert found(folder) == {}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (-30, -20, "ran 62.0 s, but the attempt took 12 s with all"),
        (-5000, 5000, "run_start 5000 s before its attempt began"),
        (5000, -4900, "run_stop 4900 s after its attempt had ended"),
    ],
)
def test_a_run_outside_of_its_attempt_breaks_a_rule(folder, before, after, said):
    lasted(folder, 2, before, after)
    ((grade, message),) = found(folder)["clock"]
    assert grade == "breaks" and said in message


@pytest.mark.parametrize(
    "value", [None, 3, "yesterday", "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59-23:00"]
)
def test_times_of_another_form_tell_nothing(folder, value):
    attempt(folder, 2, started=None, ended=value)
    assert found(folder).keys() <= {"clock"}
    attempt(folder, 2, started=value, ended=None)
    judged(folder)


@pytest.mark.parametrize(
    ("seconds", "number"), [(-120, 1), (-3, 0), (0, 0), (90 * 24 * 3600, 0), (-300 * 24 * 3600, 0)]
)
def test_a_file_that_was_last_written_before_its_end_is_for_review(folder, seconds, number):
    planned_before(folder)
    for run in range(5):
        stopped = times(folder, run)[1] / 1000 + (seconds if run == 2 else 1)
        os.utime(folder / f"result_{run}.txt", (stopped, stopped))
    listed = found(folder).get("file_time", [])
    assert len(listed) == number
    assert all(grade == "review" and "120 s before the run_stop" in message for grade, message in listed)


def swapped(folder):
    """The logs of runs 1 and 3 in each other's place, as of a campaign that ran them so."""
    texts = {run: (folder / f"result_{run}.txt").read_text() for run in (1, 3)}
    for run, other in ((1, 3), (3, 1)):
        text = texts[other].replace(f'"value": {1000 + other}', f'"value": {1000 + run}')
        (folder / f"result_{run}.txt").write_text(text)


def test_a_run_that_began_after_a_later_one_is_for_review(folder):
    planned_before(folder)
    swapped(folder)
    messages = findings_of(judged(folder), "order")
    assert [grade for grade, _ in messages] == ["review", "review"]
    assert "began after that of result_2.txt, and has one attempt" in messages[0][1]


@pytest.mark.parametrize("why", ["parallel", "array", "again", "unrecorded"])
def test_runs_in_another_order_may_be_explained(folder, why):
    options = {"parallel": {"parallel": 2}, "array": {"array": True}}.get(why, {})
    jobs = [{"index": index, "seed": 1000 + index, "launcher_config": options} for index in range(5)]
    planned_before(folder, jobs=jobs)
    swapped(folder)
    for run in (1, 2):
        if why == "again":
            attempt(folder, run, 1, outcome="died")
            attempt(folder, run, 2)
        elif why == "unrecorded":
            (folder / "attempts" / f"run_{run}_1.json").unlink()
    assert findings_of(judged(folder), "order") == []


def paused(folder, seconds, *, launcher="inline", parallel=None, tries=1):
    """Attempts of ten minutes, the last of which began so many seconds after the one before it had ended."""
    options = {"name": launcher} | ({} if parallel is None else {"parallel": parallel})
    jobs = [{"index": index, "seed": 1000 + index, "launcher_config": options} for index in range(5)]
    planned_before(folder, jobs=jobs)
    began = times(folder, 0)[0]
    for run in range(5):
        started = began + run * 601_000 + (seconds * 1000 if run == 4 else 0)
        attempt(folder, run, started=iso(started), ended=iso(started + 600_000))
    for number in range(1, tries):
        attempt(
            folder, 4, number, outcome="died", started=iso(began + 2_405_000), ended=iso(started - 10_000)
        )
        attempt(folder, 4, number + 1, started=iso(started), ended=iso(started + 600_000))
    return findings_of(judged(folder), "pause")


def test_a_run_long_after_the_attempt_before_it_is_for_review(folder):
    ((grade, message),) = paused(folder, 2 * 3600)
    assert (
        grade == "review"
        and "The run of result_4.txt began 2.0 h after the attempt before it had ended" in message
    )


@pytest.mark.parametrize(
    ("seconds", "options"),
    [
        (0, {}),
        (3500, {}),
        (2 * 3600, {"launcher": "slurm"}),
        (2 * 3600, {"parallel": 2}),
        (2 * 3600, {"tries": 2}),
    ],
)
def test_short_pauses_queues_and_failed_attempts_are_no_question(folder, seconds, options):
    assert paused(folder, seconds, **options) == []


@pytest.mark.parametrize("jobs", [[{"seed": 1}] * 5, [{"index": 1, "seed": 5}] * 5, "none", [3]])
def test_a_plan_that_numbers_no_runs_declares_none(folder, jobs):
    plan(folder, **PLANNED, jobs=jobs)
    ((grade, message),) = found(folder)["declared"]
    assert grade == "review" and "other runs and campaigns cannot be counted" in message
    assert json.loads((folder / "plan.json").read_text())["jobs"] == jobs
