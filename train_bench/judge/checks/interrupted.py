"""Runs that failed and were started again from a checkpoint."""

from __future__ import annotations

from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import BREAKS, REVIEW, Finding, finding
from train_bench.logs.restarts import FAILED, RESTORED
from train_bench.rules.allowed import OPEN


def check_interruptions(case: LogCase) -> list[Finding]:
    """Restarts of a run, in every round: the closed division takes runs that were not interrupted."""
    record, log, rules = case.record, case.log, case.rules
    told = [event for event in log.events if event.key in (FAILED, RESTORED)]
    if not told:
        return []
    first, times = told[0], sum(event.key == RESTORED for event in told)
    message = (
        f"The processes of this run died and it was started again, {times} time(s); the closed division takes runs "
        f"that were not interrupted."
    )
    grade = REVIEW if record.division == OPEN else BREAKS
    return [
        finding(record, rules, "restarts", message, line=first.line, key=first.key, value=times, grade=grade)
    ]
