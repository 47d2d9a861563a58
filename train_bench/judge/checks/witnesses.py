"""The clock of a run against its witnesses: the monotonic clock of the ranks (`processor_wait`), and that of the
launching process, in the record of the attempt. The log was written by neither of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from train_bench.core.finite_number import finite_number
from train_bench.judge.checks.campaign_checks import attempts_at
from train_bench.judge.checks.case import EntryCase, LogCase
from train_bench.judge.finding import Finding, finding
from train_bench.logs.record import PROCESSOR_WAIT, RunRecord

CLOCK = "clock"

RANKS_SECONDS = 1.0
"""Time that ranks take around the clock to read that of their processors."""

PARENT_SECONDS = 2.5
"""Time that the launching process takes to see a line."""

MOST_LOST = 0.95
"""Share of the processors' time, lost to other processes, above which these times grow no further."""

LARGEST_SECONDS = 1e12
"""No run takes as long; larger numbers measure nothing."""

SHARE = 0.05
"""Share of a run by which two clocks may differ besides."""


def check_rank_clock(case: LogCase) -> Iterator[Finding]:
    """The window of the log against the ranks' monotonic clock. A run that started again has this clock of its last
    start alone, which may only be shorter."""
    record, rules = case.as_logged[0], case.rules
    for event in case.log.events.of(PROCESSOR_WAIT):
        waited = event.value if isinstance(event.value, Mapping) else {}
        seconds = finite_number(waited.get("seconds"), below=LARGEST_SECONDS)
        if seconds is None or record.minutes is None:
            continue
        if seconds > _longest(record, RANKS_SECONDS):
            message = _contradiction(record, f"its ranks measured {seconds:.1f} s ({PROCESSOR_WAIT})")
            yield finding(record, rules, CLOCK, message, line=event.line, key=event.key, value=seconds)


def check_parent_clock(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """The window of the log against the clock of the launching process, in the last attempt at the run."""
    attempts = attempts_at(case.location, record.index)
    if not attempts or record.minutes is None:
        return
    seconds = finite_number(attempts[-1].get("clock_seconds"), below=LARGEST_SECONDS)
    if seconds is not None and seconds > _longest(record, PARENT_SECONDS):
        message = _contradiction(
            record, f"the launching process saw {seconds:.1f} s from run_start to run_stop"
        )
        yield finding(record, case.rules, CLOCK, message, value=seconds)


def _contradiction(record: RunRecord, witness: str) -> str:
    return f"The log says that the clock ran {(record.minutes or 0) * 60:.1f} s, but {witness}; its times are wrong."


def _longest(record: RunRecord, slack: float) -> float:
    """Seconds that an honest witness may measure. What takes `slack` on an idle machine takes longer on a busy one,
    which the log says and the verdict shows."""
    lost = min(max(0.0, record.processor_lost or 0.0), MOST_LOST)
    return (record.minutes or 0.0) * 60 * (1 + SHARE) + slack / (1 - lost)
