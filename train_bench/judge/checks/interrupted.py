"""Runs that failed and were started again from a checkpoint."""

from __future__ import annotations

from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import BREAKS, REVIEW, Finding, finding
from train_bench.logs.restarts import FAILED, RESTORED
from train_bench.rules.allowed import OPEN


def check_interruptions(case: LogCase) -> list[Finding]:
    """Restarts of a run, in every round: the closed division takes runs that were not interrupted."""
    record, log, rules = case.record, case.log, case.rules
    lines = list(log.events.of(FAILED, RESTORED))
    if not lines:
        return []
    first, times = lines[0], sum(event.key == RESTORED for event in lines)
    message = (
        f"This run was restarted {times} time(s) after its processes had died; the closed division does "
        "not allow restarts."
    )
    grade = REVIEW if record.division == OPEN else BREAKS
    return [
        finding(record, rules, "restarts", message, line=first.line, key=first.key, value=times, grade=grade)
    ]
