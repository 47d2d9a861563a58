"""Rules of the rule files that a log breaks, with the errata that waive them."""

from __future__ import annotations

from collections.abc import Container

from train_bench.judge.checks.case import LogCase
from train_bench.judge.checks.clock import restart_lines
from train_bench.judge.finding import BREAKS, WAIVED, Finding
from train_bench.logs.record import SUCCESS, RunRecord
from train_bench.rules.checks import Failure, waived_by
from train_bench.rules.explain import allowed, explain, next_step, paragraph
from train_bench.rules.ruleset import BenchmarkRules

# What a log cannot have whose run was cut off, or aborted before its first evaluation.
AFTER_THE_END = frozenset(
    {
        *("run_stop", "train_samples", "eval_samples", "block_start", "block_stop"),
        *("eval_start", "eval_stop", "eval_accuracy"),
    }
)


STARTS = frozenset({"init_start", "init_stop", "run_start"})
"""Keys whose rules a second start breaks, which has a finding of its own."""


def check_rule_files(case: LogCase) -> list[Finding]:
    """Every broken rule but that of the target, which decides about convergence."""
    record, log, rules, failures = case.record, case.log, case.rules, case.failures
    logged = log.events.keys
    repeated = STARTS if restart_lines(log) else frozenset()
    return [
        broken_rule(record.file, failure, rules, logged)
        for failure in failures
        if failure.kind != "target"
        and not _follows_from_death(record, failure)
        and failure.key not in repeated
    ]


def broken_rule(file: str, failure: Failure, rules: BenchmarkRules, logged: Container[str]) -> Finding:
    """A broken rule of the rule files as a finding, waived if an erratum applies to a log that has the keys
    `logged`."""
    erratum = waived_by(rules, failure, logged)
    message = explain(failure)
    if erratum is not None:
        message += f" Waived ({erratum.id}): {erratum.why}"
    return Finding(
        check=failure.key or "end",
        grade=BREAKS if erratum is None else WAIVED,
        file=file,
        line=failure.line,
        key=failure.key,
        message=message,
        value=failure.value if failure.kind == "check" else None,
        allowed=allowed(failure),
        paragraph=paragraph(failure.key),
        next_step=next_step(failure),
        erratum=erratum.id if erratum else None,
    )


def _follows_from_death(record: RunRecord, failure: Failure) -> bool:
    """Missing events of a run that died before them are reported once, by its end."""
    if record.status == SUCCESS or failure.kind not in ("count", "end", "absent"):
        return False
    return failure.key in AFTER_THE_END or record.minutes is None
