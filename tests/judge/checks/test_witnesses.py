"""The clock of a log against those that others have read: of the ranks, and of the launching process."""

import inspect
import time

import pytest

from tests.judge.checks.test_campaign_checks import attempt, findings_of, folder, judged
from tests.judge.checks.test_cheats import edit_log
from train_bench.core.event import Event
from train_bench.observers.parent_clock import ParentClock

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


def test_a_busy_machine_takes_longer_around_the_clock(folder):
    seen = 1.05 * window(folder, 2) + 3.9
    with_wait(folder, 2, seen)
    assert len(findings_of(judged(folder), "clock")) == 1
    with_wait(folder, 2, seen, lost=0.75)
    assert findings_of(judged(folder), "clock") == []


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
    clock = ParentClock(lambda: next(now))
    assert clock.as_json() == {"clock_seconds": None}
    for key in ("init_start", "run_start", "block_start", "run_start", "run_stop", "run_stop"):
        clock.event(Event(key, None, 0, "", {}, 1))
    assert clock.as_json() == {"clock_seconds": 26.25}
