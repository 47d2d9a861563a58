"""Compliance of a run's log: findings, and whether the run is compliant and converged.

Two separate verdicts. *Converged*: `run_stop` says success and the logged quality reached the target. *Compliant*:
every rule holds that also applies to runs that fail to converge. A run that misses the target is an honest slow run;
a run that breaks a rule is no result. `officially_compliant` is the official checker's verdict on the file: no
errata, and a run that missed the target is refused, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from train_bench.judge.checks import LOG_CHECKS
from train_bench.judge.checks.among_runs import check_among_runs
from train_bench.judge.checks.case import LogCase
from train_bench.judge.checks.planned import Planned
from train_bench.judge.finding import BREAKS, SLOW, Finding
from train_bench.judge.official.official_log import reads
from train_bench.logs.log import Log
from train_bench.logs.record import SUCCESS, RunRecord
from train_bench.rules.allowed import CLOSED, OPEN
from train_bench.rules.checks import Checking, Failure, check
from train_bench.rules.ruleset import BenchmarkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """Verdict of the rules on one run; `official_crash` is the exception of the official checker."""

    converged: bool
    compliant: bool
    officially_compliant: bool
    findings: tuple[Finding, ...]
    official_crash: str | None = None


def judge_run(
    record: RunRecord,
    log: Log,
    rules: BenchmarkRules,
    planned: Planned | None = None,
    *,
    closed: bool = False,
    world_size: int | None = None,
    of_command: bool = False,
) -> RunVerdict:
    """Judge one log by itself and against what was `planned`. `closed` holds a log that announces the open division
    to the rules of the closed one. `world_size` and `of_command` as in `LogCase`."""
    failures, crash = _official_failures(rules, log) if log.events else ([], None)
    officially = bool(log.events) and crash is None and reads(log) and all(one.lost for one in failures)
    as_logged = record, log
    if closed and record.division == OPEN:
        record, log = _as_closed(record, log)
        failures = check(rules, log.events)
    case = LogCase(
        record=record,
        log=log,
        rules=rules,
        failures=failures,
        as_logged=as_logged,
        planned=planned,
        world_size=world_size,
        of_command=of_command,
    )
    findings = [finding for run_check in LOG_CHECKS for finding in run_check(case)]
    return replace(_verdict(record, findings, officially=officially), official_crash=crash)


def _official_failures(rules: BenchmarkRules, log: Log) -> tuple[list[Failure], str | None]:
    """Broken rules of the rule files, and the exception that stops the official checker."""
    checking = Checking(rules, log.events)
    return checking.finish(), checking.crash


def judge_together(
    records: Sequence[RunRecord],
    verdicts: Sequence[RunVerdict],
    rules: BenchmarkRules,
    planned: Planned | None = None,
) -> tuple[RunVerdict, ...]:
    """The verdicts with the findings that need several logs."""
    return tuple(map(with_findings, records, verdicts, check_among_runs(records, planned, rules)))


def _as_closed(record: RunRecord, log: Log) -> tuple[RunRecord, Log]:
    """Record and log as if it announced the closed division."""
    events = log.events.with_value("submission_division", CLOSED)
    announced = {**record.announced, "submission_division": CLOSED}
    return replace(record, announced=announced), replace(log, events=events)


def with_findings(record: RunRecord, verdict: RunVerdict, findings: Sequence[Finding]) -> RunVerdict:
    """A verdict with further findings on the run."""
    officially = verdict.officially_compliant
    judged = _verdict(record, [*verdict.findings, *findings], officially=officially)
    return replace(judged, official_crash=verdict.official_crash)


def _verdict(record: RunRecord, findings: Sequence[Finding], *, officially: bool) -> RunVerdict:
    grades = {finding.grade for finding in findings}
    return RunVerdict(
        converged=record.status == SUCCESS and SLOW not in grades,
        compliant=BREAKS not in grades,
        officially_compliant=officially,
        findings=tuple(findings),
    )
