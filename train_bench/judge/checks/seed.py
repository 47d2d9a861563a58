"""A seed in every log of the closed division."""

from __future__ import annotations

from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import BREAKS, REVIEW, Finding, finding
from train_bench.rules.allowed import OPEN


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
    message = "The log has no seed; log the seed of this run."
    if erratum is not None:
        message += f" For review only ({erratum.id}): {erratum.why}"
    return [finding(record, rules, "seed", message, key="seed", grade=BREAKS if erratum is None else REVIEW)]
