"""The clock of a log against those that others have read: of the ranks, and of the launching process."""

import inspect
import json
import time

import pytest

from tests.judge.campaigns import plan
from tests.judge.checks.test_campaign_checks import PLANNED, attempt, findings_of, folder, judged
from tests.judge.checks.test_cheats import edit_log
from train_bench.core.event import Event
from train_bench.observers.parent_clock import ParentClock, suspended_seconds

assert folder  # a fixture


def with_wait(folder, run, seconds, **more):
    """The log of a run whose ranks have measured so many seconds."""

    def change(one):
        if one["key"] == "processor_wait":
            one["value"] = {**one["value"], "seconds": seconds, **more}
        return one

    edit_log(folder / f"result_{run}.txt", change)


def window(folder, run):
    """Seconds that a log says that its clock ran."""
    record = next(one for one in judged(folder).records if one.index == run)
    return record.minutes * 60


@pytest.mark.parametrize("seconds", [0, 1, "window", "slack", None, "text", 10**400])
def test_what_ranks_and_log_agree_on_is_no_finding(folder, seconds):
    if seconds in ("window", "slack"):
        seconds = window(folder, 2) * (1.04 if seconds == "slack" else 1) + 0.9
    with_wait(folder, 2, seconds)
    assert findings_of(judged(folder), "clock") == []


@pytest.mark.parametrize(("more", "grade"), [(3.9, "review"), (4.1, "breaks")])
def test_a_stated_loss_does_not_stretch_the_tolerance(folder, more, grade):
    seen = 1.05 * window(folder, 2) + more
    with_wait(folder, 2, seen)
    assert [one for one, _ in findings_of(judged(folder), "clock")] == [grade]
    with_wait(folder, 2, seen, lost=0.95)
    assert [one for one, _ in findings_of(judged(folder), "clock")] == [grade]


@pytest.mark.parametrize(
    "counters",
    [
        {"lost": 0.02, "ran": 20.0, "waited": 1.0, "others": 20.0, "steal": 0.0, "throttled": 0.0},
        {"lost": 0.9, "ran": 1.0, "waited": 99.0, "others": 10.0, "steal": 0.0, "throttled": 0.0},
        {"lost": 0.95, "ran": 0.9, "waited": 0.0, "others": 0.0, "steal": 0.0, "throttled": 0.0},
    ],
)
def test_a_loss_that_follows_from_its_counters_is_no_finding(folder, counters):
    with_wait(folder, 2, window(folder, 2), **counters)
    assert findings_of(judged(folder), "clock") == []


def test_a_loss_that_contradicts_its_counters_breaks_a_rule(folder):
    counters = {"ran": 20.0, "waited": 1.0, "others": 20.0, "steal": 0.0, "throttled": 0.0}
    with_wait(folder, 2, window(folder, 2), lost=0.95, **counters)
    ((grade, message),) = findings_of(judged(folder), "clock")
    assert grade == "breaks"
    assert "95.0 %" in message and "its own counters give 2.4 %" in message


@pytest.mark.parametrize(
    ("ran", "others", "cores", "grades"),
    [
        (62.0, 62.0, 2, []),
        (62.0, 72.0, 2, ["breaks"]),
        (62.0, 72.0, 1000, ["breaks"]),
        (80.0, 40.0, 2, ["review"]),
        (80.0, 55.0, 2, ["breaks"]),
    ],
)
def test_processors_do_not_run_longer_than_the_window(folder, ran, others, cores, grades):
    jobs = [
        {"index": index, "seed": 1000 + index, "nproc_per_node": 1, "threads_per_rank": 1}
        for index in range(5)
    ]
    plan(folder, **PLANNED, jobs=jobs, world_size=1)
    (folder / "system.json").write_text(json.dumps({"cores": 2, "accelerators": []}))
    lost = {"lost": 0.0, "waited": 0.0, "steal": 0.0, "throttled": 0.0}
    with_wait(folder, 2, window(folder, 2), ran=ran, others=others, cores=cores, **lost)
    assert [one for one, _ in findings_of(judged(folder), "clock")] == grades


@pytest.mark.parametrize("times", [1.1, 2, 10])
def test_a_log_whose_clock_ran_less_than_its_ranks_breaks_a_rule(folder, times):
    due = window(folder, 2)
    with_wait(folder, 2, due * times + 2)
    ((grade, message),) = findings_of(judged(folder), "clock")
    assert grade == "breaks"
    assert f"the clock ran {due:.1f} s, but its ranks measured {due * times + 2:.1f} s" in message


@pytest.mark.parametrize(("more", "found"), [(0.0, 0), (2.4, 0), (10.0, 1)])
def test_the_launching_process_has_a_clock_of_its_own(folder, more, found):
    seen = window(folder, 3) + more
    attempt(folder, 3, clock_seconds=seen)
    messages = findings_of(judged(folder), "clock")
    assert len(messages) == found
    assert all(f"the launching process saw {seen:.1f} s" in message for _, message in messages)


@pytest.mark.parametrize("value", [None, "text", True, 10**400, {}])
def test_a_record_of_another_type_tells_nothing(folder, value):
    attempt(folder, 3, clock_seconds=value)
    assert findings_of(judged(folder), "clock") == []


def test_the_launching_process_times_from_the_first_start_to_the_last_stop():
    now = iter((5.0, 9.5, 31.25))
    assert inspect.signature(ParentClock).parameters["clock"].default is time.monotonic
    clock = ParentClock(lambda: next(now), lambda: None)
    assert clock.as_json() == {"clock_seconds": None, "suspended_seconds": None}
    for key in ("init_start", "run_start", "block_start", "run_start", "run_stop", "run_stop"):
        clock.event(Event(key, None, 0, "", {}, 1))
    assert clock.as_json() == {"clock_seconds": 26.25, "suspended_seconds": None}


def test_the_launching_process_knows_how_long_its_machine_was_suspended():
    slept = iter((100.0, 150.0, 412.5))
    clock = ParentClock(suspended=lambda: next(slept))
    for key in ("run_start", "run_start", "run_stop", "run_stop"):
        clock.event(Event(key, None, 0, "", {}, 1))
    assert clock.as_json()["suspended_seconds"] == 312.5
    assert suspended_seconds() >= 0.0


@pytest.mark.parametrize("seconds", [0, 0.4, None, "text", 10**400])
def test_a_machine_that_was_not_suspended_is_no_finding(folder, seconds):
    attempt(folder, 3, suspended_seconds=seconds)
    assert findings_of(judged(folder), "suspended") == []


def test_a_machine_that_was_suspended_on_the_clock_is_a_question(folder):
    attempt(folder, 3, suspended_seconds=312.4)
    ((grade, message),) = findings_of(judged(folder), "suspended")
    assert grade == "review"
    assert "was suspended for 312 s between run_start and run_stop" in message
