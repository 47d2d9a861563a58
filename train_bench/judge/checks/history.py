"""History of a run: its log against the start and the end of its attempt, the time at which its file was last
written, and the order of the runs of a campaign.

Copies, archives and checkouts of a folder set other file times, so that only times within the campaign count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from train_bench.judge.checks.campaign_checks import CONTINUES, attempts_at, attempts_by_run
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.observed import CLOCK_SECONDS, number
from train_bench.judge.checks.planned import mapping
from train_bench.judge.checks.recorded import runs_here
from train_bench.judge.finding import REVIEW, Finding, file_finding, finding
from train_bench.logs.record import RunRecord

CLOCKS_MS = 60_000
"""Largest tolerated difference between the clocks of two hosts."""

PAUSE_SECONDS, PAUSE_RUNS = 3600.0, 3
"""Time between two attempts, in seconds and in durations of the longest one, above both of which a question is asked;
the other side of a comparison runs between."""

SHARE, SECONDS = 0.05, 5.0
"""Tolerance by which a run may exceed its attempt, whose times are in whole seconds."""


def check_attempt_times(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """The window of the log against the start and the end of its attempt, the last one at the run."""
    attempts, window = attempts_at(case.location, record.index), _window(record)
    if not attempts or window is None:
        return
    seen = number(attempts[-1].get(CLOCK_SECONDS))
    if seen is not None and (window[1] - window[0]) / 1000 > seen * (1 + SHARE) + SECONDS:
        return  # a log that is longer than the launching process saw costs its campaign time
    before = next((one for one in reversed(attempts) if one.get(CONTINUES) is not True), attempts[-1])
    started, ended = _time_ms(before.get("started")), _time_ms(attempts[-1].get("ended"))
    if started is not None and ended is not None:
        length, attempt = (window[1] - window[0]) / 1000, (ended - started) / 1000
        if length > attempt * (1 + SHARE) + SECONDS:
            message = (
                f"The log says that the clock ran {length:.1f} s, but the attempt took {attempt:.0f} s with all of its "
                "processes; its times are wrong."
            )
            yield finding(record, case.rules, "clock", message, value=length)
            return
    for apart, what in (
        (0.0 if started is None else started - window[0], "run_start {} s before its attempt began"),
        (0.0 if ended is None else window[1] - ended, "run_stop {} s after its attempt had ended"),
    ):
        if apart > CLOCKS_MS:
            message = f"The log has {what.format(round(apart / 1000))}; are these the times of another run?"
            yield finding(record, case.rules, "clock", message, value=window[0])
            return


def check_file_time(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """A log of a campaign that was last written within the campaign, but before the end that it has."""
    created, window = None if case.planned is None else case.planned.created_ms, _window(record)
    if created is None or window is None:
        return
    try:
        written = Path(record.file).stat().st_mtime * 1000
    except OSError:
        return
    if created <= written < window[1] - CLOCKS_MS:
        message = (
            f"The file was last written {(window[1] - written) / 1000:.0f} s before the run_stop that it has; was the "
            "time of the file set, or that of the line?"
        )
        yield finding(record, case.rules, "file_time", message, grade=REVIEW)


def check_order(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """A run that began after a later one, although it was tried once: a campaign takes its runs in their order."""
    planned = case.planned
    if planned is None or planned.side_by_side or record.started_ms is None or _array(case):
        return
    later = [
        other
        for other in case.records
        if other.index > record.index
        and other.started_ms is not None
        and other.started_ms + CLOCKS_MS < record.started_ms
    ]
    if later and len(attempts_at(case.location, record.index)) == 1:
        name = Path(later[0].file).name
        message = (
            f"The run began after that of {name}, and has one attempt; a campaign takes its runs in their order, so "
            "another result may have been here before."
        )
        yield finding(record, case.rules, "order", message, value=record.index, grade=REVIEW)


def check_pause(case: EntryCase) -> Iterator[Finding]:
    """A run that began long after every earlier attempt of its campaign had ended: what was between is not recorded."""
    planned = case.planned
    if planned is None or planned.side_by_side or not runs_here(case):
        return
    tried = {
        run: times
        for run, attempts in attempts_by_run(case.location).items()
        if run in planned.jobs and (times := list(filter(None, map(_attempt, attempts))))
    }
    last = {record.index: tried[record.index][-1] for record in case.records if record.index in tried}
    ordered = sorted((*time, run) for run, times in tried.items() for time in times)
    longest = max((ended - started for started, ended, _ in ordered), default=0.0)
    least, before = max(PAUSE_SECONDS * 1000, PAUSE_RUNS * longest), math.inf
    for started, ended, run in ordered:
        if started - before > least and last.get(run) == (started, ended):
            message = (
                f"The run of result_{run}.txt began {(started - before) / 3_600_000:.1f} h after the attempt before it "
                "had ended. What was between, and was this run taken again?"
            )
            yield file_finding(case.folder, "pause", message)
        before = ended if before == math.inf else max(before, ended)


def _attempt(attempt: Any) -> tuple[float, float] | None:
    """Start and end of an attempt in milliseconds since the epoch."""
    started, ended = (_time_ms(mapping(attempt).get(name)) for name in ("started", "ended"))
    return None if started is None or ended is None else (started, ended)


def check_declared(case: EntryCase) -> Iterator[Finding]:
    """A plan that declares no runs."""
    plan, planned = case.location.plan, case.planned
    jobs = plan.get("jobs")
    numbered = planned is not None and isinstance(jobs, list) and sorted(planned.jobs) == [*range(len(jobs))]
    if plan and case.rules.strict and not numbered:
        message = (
            "The plan does not number its runs, so it declares none: other runs and campaigns cannot be counted, of "
            "which these may be the best."
        )
        yield file_finding(case.folder / "plan.json", "declared", message)


def _array(case: EntryCase) -> bool:
    jobs = case.planned.jobs.values() if case.planned is not None else ()
    return any(mapping(job.get("launcher_config")).get("array") for job in jobs)


def _window(record: RunRecord) -> tuple[float, float] | None:
    """`run_start` and `run_stop` in milliseconds since the epoch."""
    if record.started_ms is None or record.minutes is None:
        return None
    return record.started_ms, record.started_ms + record.minutes * 60_000


def _time_ms(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() * 1000 if isinstance(text, str) else None
    except (ValueError, OverflowError, OSError):
        return None
