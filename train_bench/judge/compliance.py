"""A run's log against the rules: findings, and whether the run is compliant and converged.

Two questions are kept apart. *Converged*: `run_stop` says success and the logged quality reached the
target. *Compliant*: every rule holds that holds for runs that fail to converge, too. A run that misses
the target is an honest slow run; a run that breaks a rule is no result.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train_bench.judge.log import Log
from train_bench.judge.record import DIED, SUCCESS, RunRecord
from train_bench.progress import EvalSchedule
from train_bench.rules.checks import Failure, check
from train_bench.rules.explain import explain
from train_bench.rules.ruleset import BenchmarkRules

# Findings of these checks say that a run did not reach its target, not that it broke a rule.
NOT_CONVERGED = frozenset({"target", "died"})

# What a log cannot have whose run was cut off, or aborted before its first evaluation.
AFTER_THE_END = frozenset(
    {
        *("run_stop", "train_samples", "eval_samples", "block_start", "block_stop"),
        *("eval_start", "eval_stop", "eval_accuracy"),
    }
)

NO_CONTENT = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: `check` names the kind, `line` counts from 1 (0: no line of its own)."""

    check: str
    file: str
    line: int
    key: str | None
    message: str

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """What the rules say of one run."""

    converged: bool
    compliant: bool
    findings: tuple[Finding, ...]


def judge_run(record: RunRecord, log: Log, rules: BenchmarkRules) -> RunVerdict:
    """All findings about one log by itself."""
    findings = [
        *_how_it_ended(record),
        *_unreadable(record, log),
        *_rules(record, log, rules),
        *_official_data(record, log, rules),
        *_another_benchmark(record, rules),
        *_out_of_order(record, log),
        *_schedule(record, rules),
        *_target(record, rules),
    ]
    return _verdict(record, findings)


def judge_together(records: Sequence[RunRecord], verdicts: Sequence[RunVerdict]) -> tuple[RunVerdict, ...]:
    """The verdicts with what only shows among several logs: copies of a log, seeds that were used
    before, another batch size."""
    return tuple(
        _verdict(record, [*verdict.findings, *_among(record, records[:position], records)])
        for position, (record, verdict) in enumerate(zip(records, verdicts, strict=True))
    )


def _verdict(record: RunRecord, findings: Sequence[Finding]) -> RunVerdict:
    kinds = {finding.check for finding in findings}
    return RunVerdict(
        converged=record.status == SUCCESS and not kinds & NOT_CONVERGED,
        compliant=kinds <= NOT_CONVERGED,
        findings=tuple(findings),
    )


def _finding(
    record: RunRecord, check: str, message: str, *, line: int = 0, key: str | None = None
) -> Finding:
    return Finding(check=check, file=record.file, line=line, key=key, message=message)


def _unreadable(record: RunRecord, log: Log) -> list[Finding]:
    """Lines that are no events. Half a line at the end of a run that was cut off is a sign of just that."""
    last = log.events[-1].line if log.events else 0
    findings = []
    for problem in log.problems:
        cut_off = record.status == DIED and problem.line > last
        message = f"Unreadable line: {problem.message}."
        findings.append(_finding(record, "died" if cut_off else "parse", message, line=problem.line))
    return findings


def _how_it_ended(record: RunRecord) -> list[Finding]:
    if record.deaths:
        return [_finding(record, "died", f"The run's processes died: {'; '.join(record.deaths)}.")]
    if record.status == DIED:
        message = "There is no run_stop: the run was cut off, it counts as not converged."
        return [_finding(record, "died", message, key="run_stop")]
    return []


def _rules(record: RunRecord, log: Log, rules: BenchmarkRules) -> list[Finding]:
    if not log.events:
        return []
    return [
        _finding(record, failure.key or "end", explain(failure), line=failure.line, key=failure.key)
        for failure in check(rules, log.events)
        if failure.kind != "target" and not _follows_from_death(record, failure)
    ]


def _follows_from_death(record: RunRecord, failure: Failure) -> bool:
    """Missing events of a run that did not get to them are said once, by how it ended."""
    if record.status == SUCCESS or failure.kind not in ("count", "end"):
        return False
    return failure.key in AFTER_THE_END or record.minutes is None


def _official_data(record: RunRecord, log: Log, rules: BenchmarkRules) -> list[Finding]:
    """What official rounds demand and their rule files do not check: a seed in every log (seed checker of
    the closed division) and cleared caches (rules, start state of data)."""
    findings = []
    if not rules.fixed_seeds_allowed and record.seed is None and record.minutes is not None:
        findings.append(_finding(record, "seed", "The log has no seed; log the one of this run.", key="seed"))
    warm = [event for event in log.events if event.key == "cache_clear" and event.value is not True]
    if not rules.uncleared_cache_allowed and warm:
        message = f"cache_clear is {warm[0].value!r}: the run began with warm caches, which {rules.ruleset} forbids."
        findings.append(_finding(record, "cache_clear", message, line=warm[0].line, key="cache_clear"))
    return findings


def _another_benchmark(record: RunRecord, rules: BenchmarkRules) -> list[Finding]:
    if record.benchmark in (rules.name, None):
        return []
    message = (
        f"This is a log of {record.benchmark}, judged among those of {rules.name}; take it out of the folder."
    )
    return [_finding(record, "benchmark", message, key="submission_benchmark")]


def _out_of_order(record: RunRecord, log: Log) -> list[Finding]:
    for before, event in zip(log.events, log.events[1:], strict=False):
        if event.time_ms < before.time_ms:
            message = (
                f"{event.key} is logged at {event.time_ms} ms, {before.time_ms - event.time_ms} ms before the "
                f"line above it; a clock that steps back times nothing."
            )
            return [_finding(record, "time", message, line=event.line, key=event.key)]
    return []


def _schedule(record: RunRecord, rules: BenchmarkRules) -> list[Finding]:
    """Every evaluation at its point, none left out, none besides (rules, evaluation schedule)."""
    seen = [evaluated.epoch_num for evaluated in record.evaluations]
    if not seen:
        return []
    first = seen[0]
    refused = rules.schedule.refuse(first, rules.schedule.period)
    if first is None or refused:
        return [_finding(record, "schedule", f"First evaluation: {refused or 'without epoch_num'}")]
    until = first + rules.schedule.period * (len(seen) - 1)
    expected = EvalSchedule(first=first, period=rules.schedule.period, until=until).points()
    for position, (number, due) in enumerate(zip(seen, expected, strict=True), start=1):
        if number is None or abs(number - due) > 1e-6:
            message = (
                f"Evaluation {position} is at {rules.unit.value} {number}, due at {due:g} (first {first:g}, then "
                f"every {rules.schedule.period:g})."
            )
            return [_finding(record, "schedule", message, key="eval_accuracy")]
    return []


def _target(record: RunRecord, rules: BenchmarkRules) -> list[Finding]:
    """Whether the target was reached, when, and whether `run_stop` says the same."""
    reached = [rules.target.reached(rules.target.quality_of(item.value)) for item in record.evaluations]
    cut_off = record.status == DIED or bool(record.deaths)
    findings = []
    if record.status == SUCCESS and not any(reached):
        message = f"run_stop says success, but no evaluation reached the target ({rules.target})."
        findings.append(_finding(record, "run_stop", message, key="run_stop"))
    if any(reached[:-1]):
        message = (
            f"Evaluation {reached.index(True) + 1} reached the target, but the run went on; it ends at the first "
            f"that does."
        )
        findings.append(_finding(record, "stop", message, key="run_stop"))
    if record.status != SUCCESS and reached and reached[-1] and not cut_off:
        message = "The last evaluation reached the target, but run_stop says aborted."
        findings.append(_finding(record, "run_stop", message, key="run_stop"))
    if not any(reached) and not cut_off:
        message = f"The target ({rules.target}) was not reached; last quality {record.quality}."
        findings.append(_finding(record, "target", message, key="eval_accuracy"))
    return findings


def _among(record: RunRecord, earlier: Sequence[RunRecord], everyone: Sequence[RunRecord]) -> list[Finding]:
    findings = []
    for other in earlier:
        name = Path(other.file).name
        if other.sha256 == record.sha256 != NO_CONTENT:
            findings.append(
                _finding(record, "duplicate", f"This log is a copy of {name}; a run counts once.")
            )
        elif other.seed == record.seed and record.seed is not None:
            message = f"Seed {record.seed} was used by {name} already; every run has its own."
            findings.append(_finding(record, "seed", message, key="seed"))
    sizes = Counter(other.global_batch_size for other in everyone if other.global_batch_size is not None)
    usual = sizes.most_common(1)[0][0] if sizes else None
    if record.global_batch_size not in (usual, None):
        message = f"global_batch_size is {record.global_batch_size}, that of the other runs {usual}."
        findings.append(_finding(record, "batch size", message, key="global_batch_size"))
    return findings
