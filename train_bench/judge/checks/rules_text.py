"""Values of a closed log that depart from the text of the training rules where the rule files leave them open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import Finding, finding
from train_bench.rules.allowed import CLOSED
from train_bench.rules.fixed_values import departures


def check_rules_text(case: LogCase) -> Iterator[Finding]:
    """Departures, for review: where text and official checker differ, the checker counts."""
    record, log, rules = case.record, case.log, case.rules
    if record.announced.get("submission_division") != CLOSED:
        return
    first = log.events.first_of_each()
    values = {key: event.value for key, event in first.items()}
    for one in departures(rules, values):
        found = finding(
            record, rules, "rules_text", str(one), line=first[one.key].line, key=one.key, value=one.value
        )
        yield replace(found, allowed=one.allowed, paragraph=one.section)
