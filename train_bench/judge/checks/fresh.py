"""Runs of an entry that need far fewer samples than others, as those do that continue from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from train_bench.core.escape import plain
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import Finding, file_finding
from train_bench.logs.record import SUCCESS, RunRecord

FOLD = 6.0
"""Factor between the most and the fewest samples to the target of an entry from which a question is asked. Of published
entries, the widest has 3.8 (36 runs of unet3d)."""

MANY = 4
"""Evaluations of the first run from which on it is asked why most later ones have one."""

QUESTION = (
    "Does each run begin with new weights, or do some continue from a checkpoint that an earlier one left?"
)


def check_fresh(case: EntryCase) -> Iterator[Finding]:
    """Question about runs that reach the target after numbers of samples that differ many-fold, or most of which have
    reached it in their first evaluation where the earliest run had not."""
    reached = [
        record
        for record in case.records
        if record.status == SUCCESS and record.convergence is not None and record.convergence > 0
    ]
    for said in filter(None, (_far_apart(reached, case), _at_once(reached))):
        message, value = said
        yield file_finding(case.folder, "fresh", f"{message} {QUESTION}", value=value)
        return


def _far_apart(reached: Sequence[RunRecord], case: EntryCase) -> tuple[str, float] | None:
    positions = [(record.convergence or 0.0, plain(Path(record.file).name)) for record in reached]
    if len(positions) < 2:
        return None
    (fewest, short), (most, long) = min(positions), max(positions)
    if most < FOLD * fewest:
        return None
    unit = case.rules.unit.value
    message = f"{short} reaches the target at {unit} {fewest:g}, {long} at {most:g}, {most / fewest:.3g} times as many."
    return message, round(most / fewest, 3)


def _at_once(reached: Sequence[RunRecord]) -> tuple[str, float] | None:
    begun = [record for record in reached if record.started_ms is not None]
    if not begun:
        return None
    first, *later = sorted(begun, key=lambda record: record.started_ms or 0)
    at_once = [record for record in later if len(record.evaluations) == 1]
    if len(first.evaluations) < MANY or 2 * len(at_once) <= len(later):
        return None
    message = (
        f"The earliest run reaches the target in its evaluation {len(first.evaluations)}, and {len(at_once)} of "
        f"{len(later)} later ones in their first."
    )
    return message, len(at_once)
