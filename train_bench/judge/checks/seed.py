"""A seed in every log of the closed division."""

from __future__ import annotations

from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import BREAKS, REVIEW, Finding, finding
from train_bench.logs.log import Log, names
from train_bench.rules.allowed import OPEN


def _what_is_there(log: Log) -> str:
    """Reason that a log has no seed: there is none, or what is there is none."""
    event = log.events.first("seed")
    if event is not None:
        return f"The seed is {event.value!r:.80}, and a seed is a whole number"
    unread = next((one for one in log.problems if one.line and names(log.path, one.line, "seed")), None)
    if unread is not None:
        return f"Line {unread.line} has the seed and cannot be read ({unread.message})"
    return "The log has no seed"


def check_seed(case: LogCase) -> list[Finding]:
    """Closed rounds demand a seed in every log; no rule file does, only the seed checker."""
    record, rules = case.record, case.rules
    if (
        rules.fixed_seeds_allowed
        or record.division == OPEN
        or record.seed is not None
        or record.minutes is None
    ):
        return []
    erratum = next((erratum for erratum in rules.errata if erratum.seeds_for_review), None)
    message = f"{_what_is_there(case.log)}; log the seed of this run."
    if erratum is not None:
        message += f" For review only ({erratum.id}): {erratum.why}"
    return [finding(record, rules, "seed", message, key="seed", grade=BREAKS if erratum is None else REVIEW)]
