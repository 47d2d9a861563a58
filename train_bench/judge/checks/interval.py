"""Interval of a score without width."""

from __future__ import annotations

from collections.abc import Iterator

from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import Finding, file_finding
from train_bench.logs.record import SUCCESS


def check_interval(case: EntryCase) -> Iterator[Finding]:
    """Runs of a score that all took equally long, to the last digit of their clock."""
    times = sorted(
        record.minutes for record in case.records if record.status == SUCCESS and record.minutes is not None
    )
    drop = case.rules.drop
    kept = times[drop : len(times) - drop] if len(times) > 2 * drop else times
    if len(kept) > 1 and kept[0] == kept[-1]:
        message = (
            f"{len(kept)} runs of the score took {60 * kept[0]:.3f} s each, so that its interval has no width; "
            "times of runs differ. Check that each log is that of a run of its own."
        )
        yield file_finding(str(case.folder), "interval", message, value=kept[0])
