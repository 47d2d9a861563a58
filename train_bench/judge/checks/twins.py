"""Two logs of one run in one folder, such as the raw output of a program and the lines taken from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from train_bench.core.escape import plain
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import Finding, file_finding
from train_bench.logs.record import RunRecord

LEAST_EVALUATIONS = 2
"""Evaluations below which two runs may have equal times by chance."""


def check_twins(case: EntryCase) -> Iterator[Finding]:
    """Logs of different content whose evaluations have the same absolute times."""
    runs: dict[tuple[object, ...], list[RunRecord]] = {}
    for record in case.records:
        if len(record.evaluations) >= LEAST_EVALUATIONS and record.started_ms is not None:
            times = (record.started_ms, *(one.time_ms for one in record.evaluations))
            runs.setdefault(times, []).append(record)
    twins = [logs for logs in runs.values() if len({one.sha256 for one in logs}) > 1]
    if twins:
        first, second = (plain(Path(one.file).name) for one in twins[0][:2])
        message = (
            f"{len(twins)} run(s) have several logs, for example {first} and {second}; keep one of each, the others "
            "count as further runs."
        )
        yield file_finding(case.folder, "twins", message, value=len(twins))
