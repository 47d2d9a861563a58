"""A run's log against the rules: findings, and whether the run is compliant and converged.

Two questions are kept apart. *Converged*: `run_stop` says success and the logged quality reached the
target. *Compliant*: every rule holds that holds for runs that fail to converge, too. A run that misses
the target is an honest slow run; a run that breaks a rule is none. `officially_compliant` is what the
official checker says of the file: no errata, and a run that missed the target is refused, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from train_bench.judge.checks import unverifiable
from train_bench.judge.checks.against_plan import Planned, against_each_other, check_run_against_plan
from train_bench.judge.checks.ranks import ranks
from train_bench.judge.checks.rates import rates
from train_bench.judge.checks.review import CLOSED, OPEN, finding, review
from train_bench.judge.checks.samples import samples
from train_bench.judge.finding import BREAKS, REVIEW, SLOW, WAIVED, Finding
from train_bench.logs.log import NO_CONTENT, Log
from train_bench.logs.record import DIED, SUCCESS, RunRecord
from train_bench.logs.restarts import FAILED, RESTORED
from train_bench.rules.checks import Failure, check, waived_by
from train_bench.rules.explain import allowed, explain, next_step, paragraph
from train_bench.rules.ruleset import BenchmarkRules

# What a log cannot have whose run was cut off, or aborted before its first evaluation.
AFTER_THE_END = frozenset(
    {
        *("run_stop", "train_samples", "eval_samples", "block_start", "block_stop"),
        *("eval_start", "eval_stop", "eval_accuracy"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """What the rules say of one run."""

    converged: bool
    compliant: bool
    officially_compliant: bool
    findings: tuple[Finding, ...]


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
    """All findings about one log, by itself and against what was `planned`. `closed` holds a log that announces
    the open division to the rules of the closed one. `world_size` is that of the campaign's plan, None for a log
    that came alone. `of_command` says that a program of the user's own wrote it."""
    failures = check(rules, log.events) if log.events else []
    officially = bool(log.events) and not log.problems and all(failure.lost for failure in failures)
    planned_otherwise = list(check_run_against_plan(planned, record, log, rules))
    if closed and says_open(record):
        record, log = _as_closed(record, log)
        failures = check(rules, log.events)
    findings = [
        *_how_it_ended(record, rules),
        *_unreadable(record, log, rules),
        *_broken_rules(record, log, rules, failures),
        *_without_seed(record, rules),
        *review(record, log, rules),
        *ranks(record, log, rules, world_size, of_command=of_command),
        *samples(record, log, rules, planned=world_size is not None and not of_command),
        *rates(record, log, rules),
        *_restarted(record, log, rules),
        *(unverifiable.unverifiable_in_log(record, log, rules) if of_command else ()),
        *planned_otherwise,
    ]
    return _verdict(record, findings, officially=officially)


def says_open(record: RunRecord) -> bool:
    """Whether a log announces the open division, in which little is a rule."""
    return record.announced.get("submission_division") == OPEN


def _as_closed(record: RunRecord, log: Log) -> tuple[RunRecord, Log]:
    """What the log would be if it announced the closed division."""
    events = tuple(
        event._replace(value=CLOSED) if event.key == "submission_division" else event for event in log.events
    )
    announced = {**record.announced, "submission_division": CLOSED}
    return replace(record, announced=announced), replace(log, events=events)


def judge_together(
    records: Sequence[RunRecord],
    verdicts: Sequence[RunVerdict],
    rules: BenchmarkRules,
    planned: Planned | None = None,
) -> tuple[RunVerdict, ...]:
    """The verdicts with what only shows among several logs: copies of a log, seeds that were used
    before, another batch size, system or division, times and speeds that runs of one campaign cannot have."""
    announced = [
        {
            "global_batch_size": record.global_batch_size,
            "submission_platform": record.announced.get("submission_platform"),
            "submission_division": record.announced.get("submission_division"),
        }
        for record in records
    ]
    usual = (
        {key: _most_common([values[key] for values in announced]) for key in announced[0]} if records else {}
    )
    first_log: dict[str, RunRecord] = {}
    first_seed: dict[int | None, RunRecord] = {}
    compared = against_each_other(records, planned, rules)
    together = []
    for record, verdict, values, odd in zip(records, verdicts, announced, compared, strict=True):
        same_log = first_log.setdefault(record.sha256, record)
        same_seed = first_seed.setdefault(record.seed, record)
        findings = _repeated(record, same_log, same_seed, rules)
        for key, value in values.items():
            findings += _unusual(record, key, value, usual[key], rules)
        findings += odd
        together.append(with_findings(record, verdict, findings))
    return tuple(together)


def with_findings(record: RunRecord, verdict: RunVerdict, findings: Sequence[Finding]) -> RunVerdict:
    """A verdict with what else was found of the run."""
    officially = verdict.officially_compliant
    return _verdict(record, [*verdict.findings, *findings], officially=officially)


def _verdict(record: RunRecord, findings: Sequence[Finding], *, officially: bool) -> RunVerdict:
    grades = {finding.grade for finding in findings}
    return RunVerdict(
        converged=record.status == SUCCESS and SLOW not in grades,
        compliant=BREAKS not in grades,
        officially_compliant=officially,
        findings=tuple(findings),
    )


def _unreadable(record: RunRecord, log: Log, rules: BenchmarkRules) -> list[Finding]:
    """Lines that are no events. Half a line at the end of a run that was cut off is a sign of just that."""
    last = log.events[-1].line if log.events else 0
    findings = []
    for problem in log.problems:
        cut_off = record.status == DIED and problem.line > last
        message = f"Unreadable line: {problem.message}."
        check, grade = ("died", SLOW) if cut_off else ("parse", BREAKS)
        findings.append(finding(record, rules, check, message, line=problem.line, grade=grade))
    return findings


def _how_it_ended(record: RunRecord, rules: BenchmarkRules) -> list[Finding]:
    if record.deaths:
        message = f"The run's processes died: {'; '.join(record.deaths).removesuffix('.')}."
        return [finding(record, rules, "died", message, grade=SLOW)]
    if record.status == DIED:
        message = "There is no run_stop: the run was cut off, it counts as not converged."
        return [finding(record, rules, "died", message, key="run_stop", grade=SLOW)]
    return []


def _broken_rules(
    record: RunRecord, log: Log, rules: BenchmarkRules, failures: Sequence[Failure]
) -> list[Finding]:
    logged = {event.key for event in log.events}
    return [
        broken_rule(record.file, failure, rules, logged)
        for failure in failures
        if failure.kind != "target" and not _follows_from_death(record, failure)
    ]


def broken_rule(file: str, failure: Failure, rules: BenchmarkRules, logged: Container[str]) -> Finding:
    """A broken rule of the rule files as a finding, waived if an erratum says so for a log that has the keys
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
    """Missing events of a run that did not get to them are said once, by how it ended."""
    if record.status == SUCCESS or failure.kind not in ("count", "end", "absent"):
        return False
    return failure.key in AFTER_THE_END or record.minutes is None


def _without_seed(record: RunRecord, rules: BenchmarkRules) -> list[Finding]:
    """Closed rounds demand a seed in every log; no rule file does, only the seed checker."""
    if rules.fixed_seeds_allowed or says_open(record) or record.seed is not None or record.minutes is None:
        return []
    erratum = next((erratum for erratum in rules.errata if erratum.seeds_for_review), None)
    message = "The log has no seed; log the one of this run."
    if erratum is not None:
        message += f" For review only ({erratum.id}): {erratum.why}"
    return [finding(record, rules, "seed", message, key="seed", grade=BREAKS if erratum is None else REVIEW)]


def _restarted(record: RunRecord, log: Log, rules: BenchmarkRules) -> list[Finding]:
    """Whatever a round checks: the closed division takes runs that were not interrupted."""
    told = [event for event in log.events if event.key in (FAILED, RESTORED)]
    if not told:
        return []
    first, times = told[0], sum(event.key == RESTORED for event in told)
    message = (
        f"The processes of this run died and it was started again, {times} time(s); the closed division takes runs "
        f"that were not interrupted."
    )
    grade = REVIEW if says_open(record) else BREAKS
    return [
        finding(record, rules, "restarts", message, line=first.line, key=first.key, value=times, grade=grade)
    ]


def _repeated(
    record: RunRecord, same_log: RunRecord, same_seed: RunRecord, rules: BenchmarkRules
) -> list[Finding]:
    """The first run of the entry with the same log, and that with the same seed, where it is an earlier one."""
    if same_log is not record and record.sha256 != NO_CONTENT:
        message = f"This log is a copy of {Path(same_log.file).name}; a run counts once."
        return [finding(record, rules, "duplicate", message)]
    if same_seed is not record and record.seed is not None:
        name = Path(same_seed.file).name
        message = f"Seed {record.seed} was used by {name} already; every run has its own."
        return [finding(record, rules, "seed", message, key="seed", value=record.seed)]
    return []


def _most_common(values: Sequence[object]) -> object:
    return next((value for value, _ in Counter(values).most_common() if value is not None), None)


def _unusual(
    record: RunRecord, key: str, value: object, usual: object, rules: BenchmarkRules
) -> list[Finding]:
    """A value that most other runs of the entry do not have."""
    if value is None or value == usual:
        return []
    message = f"{key} is {value}, that of the other runs {usual}."
    return [finding(record, rules, key, message, key=key, value=value)]
