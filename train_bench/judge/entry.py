"""Judgement of the logs of one entry. Needs no torch, and works on other people's logs and years later."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from train_bench.core import begun_plans, plugins
from train_bench.core.job import PLAN_DIGEST, jobs_of
from train_bench.errors import LogError
from train_bench.judge import rcp
from train_bench.judge.checks import CAMPAIGN_CHECKS, ENTRY_CHECKS, RCP_CHECKS, RUN_CHECKS, unverifiable
from train_bench.judge.checks.campaign_checks import Changes, redefined_values
from train_bench.judge.checks.case import EntryCase, ProgramFacts
from train_bench.judge.checks.measured import measured_by, minutes_of_evaluator
from train_bench.judge.checks.planned import Planned, planned_of
from train_bench.judge.checks.submission import stated_divisions
from train_bench.judge.checks.text_numbers import TEXT
from train_bench.judge.compliance import RunVerdict, judge_run, judge_together, with_findings
from train_bench.judge.energy import Energy, kept_energy
from train_bench.judge.finding import BREAKS, REVIEW, Finding
from train_bench.judge.locate import Location, badly_ended
from train_bench.judge.official.official_log import OfficialLog, official_log
from train_bench.judge.official.official_verdict import official_verdict
from train_bench.judge.published.peers import Peers
from train_bench.judge.score import Origin, Score, counts, make_score
from train_bench.logs import log
from train_bench.logs.log import Log
from train_bench.logs.record import RunRecord, number_of, read_record
from train_bench.logs.restarts import Restarts, restarts_of, together
from train_bench.rules import ruleset
from train_bench.rules.allowed import CLOSED, OPEN
from train_bench.rules.ruleset import BenchmarkRules

OPEN_ENTRY = rcp.RcpVerdict(
    verdict=rcp.NONE, message="the open division has no convergence check", factor=1.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Records, verdicts (one per record), findings on the entry, and its score; of a published entry also its
    peers, if some are known. `restarts` are the costs of checkpoints and failures of runs that had such,
    `summaries` the results of `summarize` for each log, `programs` the facts on a user's own program that wrote it."""

    location: Location
    records: tuple[RunRecord, ...]
    verdicts: tuple[RunVerdict, ...]
    findings: tuple[Finding, ...]
    score: Score
    peers: Peers | None = None
    restarts: Restarts | None = None
    summaries: tuple[Any, ...] = ()
    official_logs: tuple[OfficialLog, ...] = ()
    programs: tuple[ProgramFacts, ...] = ()

    @property
    def name(self) -> str:
        """Display name of the entry."""
        parts = (self.score.submitter, self.score.system, self.score.benchmark)
        return "/".join(part for part in parts if part)

    @property
    def origin(self) -> dict[str, str | None]:
        """Location of the logs, and of a campaign its start and its revision."""
        plan = self.location.plan
        return {
            "folder": str(self.location.folder),
            "created": _text(plan.get("created")),
            "revision": _text(plan.get("revision")),
        }

    @property
    def energy(self) -> Energy | None:
        """Energy of the runs that make the score, if there are power logs next to them."""
        measured = self._measured
        return measured if isinstance(measured, Energy) else None

    @property
    def _measured(self) -> Energy | str:
        left_out = [run.dropped or not run.counted for run in self.score.runs]
        return kept_energy(self.records, left_out)

    def energy_as_json(self) -> dict[str, Any]:
        """Energy as in `score --json`: `energy`, and `energy_reason` where it is null."""
        measured = self._measured
        if isinstance(measured, Energy):
            return {"energy": measured.as_json(), "energy_reason": None}
        return {"energy": None, "energy_reason": measured}

    def as_json(self) -> dict[str, Any]:
        """The score's object with all findings added."""
        score = self.score.as_json()
        for run, verdict in zip(score["runs"], self.verdicts, strict=True):
            run["findings"] = [finding.as_json() for finding in verdict.findings]
        findings = [finding.as_json() for finding in self.findings]
        return score | self.origin | {"peers": self.peers_as_json(), "findings": findings}

    def peers_as_json(self) -> dict[str, Any] | None:
        """Peers as in `judge --json` and `score --json`."""
        return None if self.peers is None else self.peers.as_json()


def judge_entry(
    location: Location,
    *,
    rcp_folders: Sequence[Path],
    changes: Changes | None = None,
    summarize: Callable[[Log], Any] | None = None,
) -> Judgement:
    """Judge the logs of one entry, by the plan next to them if there is one.

    `changes` gives the differences of a planned configuration from the benchmark as it is defined here. The
    result of `summarize` for each log is kept with the judgement. Raises `LogError` if nothing names their
    benchmark.
    """
    if location.plan and location.plan.get("benchmark") not in ruleset.load(location.ruleset).benchmarks:
        found = begun_plans.find_benchmark(location.plan, str(location.folder))
        rcp_folders = rcp_folders if found is None else (*rcp_folders, found / "rcp")
    try:
        rules = _rules_of(location)
    except LogError:
        found = None if location.plan else _begun_here(location)
        if found is None:
            raise
        rules, rcp_folders = _rules_of(location), (*rcp_folders, found / "rcp")
    planned = planned_of(location)
    logs = [
        _judge_log(file, location, planned, rules, summarize) for file in sorted(location.files, key=_order)
    ]
    logs = logs if location.plan else _told_apart(logs)
    records = tuple(one.record for one in logs)
    stated = stated_divisions(location, records)
    case = _entry_case(location, logs, planned, rules, stated, rcp_folders)

    of_runs = [_found(RUN_CHECKS, case, record) for record in records]
    alone = [one.as_closed if case.closed else one.verdict for one in logs]
    verdicts = tuple(
        map(with_findings, records, judge_together(records, alone, rules, case.planned), of_runs)
    )
    of_campaign = _found(CAMPAIGN_CHECKS, case)
    of_entry = _found(ENTRY_CHECKS, case)
    official = official_verdict(
        location,
        [record.file for record in records],
        [one.official for one in logs],
        rules,
        closed=stated[:1] != (OPEN,),
    )
    origin = replace(
        _origin(location, records, rules, stated),
        redefined=redefined_values(location, rules, changes),
        world_size=_ranks(location, case),
        warnings=_warnings(of_campaign, records, of_runs),
        measured_by=measured_by(case),
    )

    def rcp_test(window: Sequence[int]) -> rcp.RcpVerdict:
        return _rcp_test(case, [records[at] for at in window], [verdicts[at] for at in window])

    broken = [finding.message for finding in of_entry if finding.grade == BREAKS]
    scored = [without_evaluator(case, record) for record in records]
    score = make_score(rules, scored, verdicts, rcp_test, case.points_digest, origin, official, broken)
    return Judgement(
        location=location,
        records=records,
        verdicts=verdicts,
        findings=(*of_campaign, *of_entry, *_found(RCP_CHECKS, case, score.rcp)),
        score=score,
        restarts=together(one.restarts for one in logs),
        summaries=() if summarize is None else tuple(one.summary for one in logs),
        official_logs=tuple(one.official for one in logs),
        programs=tuple(one.program for one in logs) if location.runs_command else (),
    )


def without_evaluator(case: EntryCase, record: RunRecord) -> RunRecord:
    """A record whose time leaves that of the evaluator out, if the plan does; the log has the whole time."""
    minutes = minutes_of_evaluator(case, record)
    return (
        record
        if record.minutes is None or not 0 < minutes < record.minutes
        else replace(record, minutes=record.minutes - minutes)
    )


def _found(checks: Sequence[Callable[..., Iterable[Finding]]], *case: Any) -> list[Finding]:
    return [finding for check in checks for finding in check(*case)]


def _rules_of(location: Location) -> BenchmarkRules:
    rounds = ruleset.load(location.ruleset)
    return rounds.benchmark(str(location.plan.get("benchmark") or benchmark_of(location, rounds)))


def _begun_here(location: Location) -> Path | None:
    """The benchmark's folder of logs without their plan, from now on found by this process, if the campaign was begun
    here."""
    digests = {log.first_value(file, PLAN_DIGEST) for file in location.files}
    return begun_plans.find_by_digest(digests.pop()) if len(digests) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgedLog:
    """One parse of a log: its record, its verdict (`as_closed` if it announces the open division and is held
    to the closed one), its facts for the official verdict, its keys among those that only some programs log, the facts
    on its `program`, the costs of failures, the result of `summarize`."""

    record: RunRecord
    verdict: RunVerdict
    as_closed: RunVerdict
    official: OfficialLog
    logged_keys: frozenset[str]
    program: ProgramFacts
    restarts: Restarts | None
    summary: Any


def _judge_log(
    file: Path,
    location: Location,
    planned: Planned | None,
    rules: BenchmarkRules,
    summarize: Callable[[Log], Any] | None,
) -> _JudgedLog:
    """Parse and judge one log. The log itself is dropped: of an entry, one file is in memory at a time."""
    record, read = read_record(file, rules)
    program = unverifiable.program_facts(read, record)
    ranks = program.ranks if location.runs_command else None
    judge = partial(
        judge_run,
        record,
        read,
        rules,
        planned,
        world_size=location.world_size if ranks is None else ranks,
        of_command=location.runs_command,
    )
    verdict = judge()
    return _JudgedLog(
        record=record,
        verdict=verdict,
        as_closed=judge(closed=True) if record.division == OPEN else verdict,
        official=official_log(
            read,
            compliant=verdict.officially_compliant,
            crash=verdict.official_crash,
            rules=rules,
        ),
        logged_keys=unverifiable.logged_keys(read),
        program=program,
        restarts=restarts_of(read),
        summary=None if summarize is None else summarize(read),
    )


def _entry_case(
    location: Location,
    logs: Sequence[_JudgedLog],
    planned: Planned | None,
    rules: BenchmarkRules,
    stated: Sequence[str],
    rcp_folders: Sequence[Path],
) -> EntryCase:
    points = rcp.load(rules, rcp_folders)
    return EntryCase(
        location=location,
        records=tuple(one.record for one in logs),
        rules=rules,
        planned=planned,
        world_size=location.world_size,
        closed=set(stated) != {OPEN},  # the stricter rules where divisions differ, or none is stated
        points=points,
        points_digest=rcp.digest(points),
        logged_keys=[one.logged_keys for one in logs],
        programs=[one.program for one in logs],
    )


def _warnings(
    of_campaign: Sequence[Finding], records: Sequence[RunRecord], of_runs: Sequence[Sequence[Finding]]
) -> tuple[str, ...]:
    """Findings for review of the files that a campaign has left, as sentences."""
    sentences = [
        f"{Path(record.file).name}: {one.message}"
        for record, findings in zip(records, of_runs, strict=True)
        for one in findings
        if one.grade == REVIEW
    ]
    return (*(one.message for one in of_campaign), *sentences)


def _ranks(location: Location, case: EntryCase) -> int | None:
    """Ranks as planned; of a program of the user's own those that ran, None if its runs had different ones."""
    programs = case.programs if location.runs_command else ()
    ranks: int | None = unverifiable.ran_or_planned(programs, "ranks", location.world_size)
    return ranks


def _order(file: Path) -> tuple[int, list[str | int]]:
    """Order of logs: by number, then by name with its numbers as numbers."""
    parts = re.split(r"(\d+)", file.stem)
    return number_of(file), [int(part) if at % 2 else part for at, part in enumerate(parts)]


def _told_apart(logs: Sequence[_JudgedLog]) -> list[_JudgedLog]:
    """The logs with their places as numbers of runs where two names end in one number, as `result_JOB_1.txt` of several
    jobs."""
    if len({one.record.index for one in logs}) == len(logs):
        return list(logs)
    return [replace(one, record=replace(one.record, index=at)) for at, one in enumerate(logs)]


def _rcp_test(
    case: EntryCase, records: Sequence[RunRecord], verdicts: Sequence[RunVerdict]
) -> rcp.RcpVerdict:
    if not case.closed:
        return OPEN_ENTRY
    rules = case.rules
    convergences = [
        record.convergence if counts(verdict, rules) else None
        for record, verdict in zip(records, verdicts, strict=True)
    ]
    broken = sum(verdict.converged and not counts(verdict, rules) for verdict in verdicts)
    compared = rcp.verdict(case.points, rules, common_batch_size(records, rules), convergences, broken)
    if compared.message.startswith(rcp.UNKNOWN_BATCH_SIZE):
        compared = replace(compared, message=_unknown_batch_size(verdicts) or compared.message)
    unplaced = sum(
        verdict.converged and counts(verdict, rules) and record.convergence is None
        for record, verdict in zip(records, verdicts, strict=True)
    )
    if unplaced > rules.drop and compared.verdict == rcp.FAIL:
        return replace(
            compared,
            message=f"not compared: {unplaced} of {len(records)} runs converged, but their last evaluation has no "
            f"{rules.counted} that is a number",
        )
    counted = sorted({record.counted for record in records if record.convergence is not None})
    if rules.counted in ("epoch_num", "samples_count") or not counted:
        return compared
    return replace(compared, message=f"{compared.message}; progress was read from {' and '.join(counted)}")


def _unknown_batch_size(verdicts: Sequence[RunVerdict]) -> str | None:
    """Reason why the batch size of the runs is not known, where they have it as text."""
    findings = [one for verdict in verdicts for one in verdict.findings]
    said = [one.message for one in findings if one.check == TEXT and one.key == "global_batch_size"]
    return said[0].removesuffix(".") if said else None


def common_batch_size(records: Sequence[RunRecord], rules: BenchmarkRules) -> int | None:
    """Global batch size of all runs. If an erratum allows others, that of the majority, unless more runs differ than
    may be dropped."""
    sizes = Counter(record.global_batch_size for record in records if record.global_batch_size is not None)
    if len(sizes) == 1:
        return next(iter(sizes))
    usual = sizes.most_common(1)
    mixed = any(erratum.mixed_batch_sizes for erratum in rules.errata)
    if mixed and usual and sizes.total() - usual[0][1] <= rules.drop:
        return usual[0][0]
    return None


def _origin(
    location: Location, records: Sequence[RunRecord], rules: BenchmarkRules, stated: Sequence[str]
) -> Origin:
    """Origin of the entry. Runs of a reference convergence point were declared for that, and are no result."""
    plan = location.plan_or_package
    of_a_result = plan.get("runs_required") == rules.runs
    first = records[0].announced if records else {}
    changes = plan.get("changes")
    return Origin(
        submitter=location.submitter or first.get("submission_org"),
        system=location.system or first.get("submission_platform"),
        division=(OPEN if set(stated) == {OPEN} else CLOSED) if stated else None,
        variant=_text(plan.get("variant")),
        launcher=_text(plan.get("launcher")),
        world_size=location.world_size,
        seeds=_text(plan.get("seeds")),
        changes=_texts(changes),
        overruled=_texts(plan.get("overruled")),
        declared_runs=_declared_runs(plan) if of_a_result else None,
        batch=badly_ended(location.folder),
        scaling=location.scaling,
        alone=location.alone,
    )


def _declared_runs(plan: Mapping[str, Any]) -> int | None:
    """Number of runs that a plan declares; None for one that numbers none of them or gives them no seeds."""
    jobs = plan.get("jobs")
    if not isinstance(jobs, list):
        return None
    named = {_integer(job.get("index")) for job in jobs_of(plan) if _integer(job.get("seed")) is not None}
    return len(jobs) if named == {*range(len(jobs))} else None


def benchmark_of(location: Location, rounds: ruleset.Ruleset) -> str:
    """Benchmark name in most logs, else that of the folder."""
    values = [log.first_value(file, "submission_benchmark") for file in location.files]
    named = Counter(value for value in values if isinstance(value, str))
    known = [name for name, _ in named.most_common() if name in rounds.benchmarks]
    if known:
        return known[0]
    if location.benchmark in rounds.benchmarks:
        return str(location.benchmark)
    logged = ", ".join(sorted(map(repr, named))) or _unread(location)
    problems = [problem for file in location.files for problem in log.read(file).problems[:1]]
    if not named and problems and problems[0].line == 0:
        raise LogError(f"No log in {location.folder} can be read: {problems[0].message}.")
    raise LogError(
        f"No log in {location.folder} is of a benchmark of {rounds.name} (submission_benchmark is "
        f"{logged}); known: {', '.join(sorted(rounds.benchmarks))}.{_trust_in_package(location)}"
    )


def _trust_in_package(location: Location) -> str:
    """Next step where the benchmark is one of the submitter's own."""
    folder = location.packaged_benchmark
    if folder is None:
        return ""
    return (
        " The package has its rules and code; to judge by them, type "
        f"export {plugins.VARIABLE}={shlex.quote(str(folder))} and repeat the command."
    )


def _unread(location: Location) -> str:
    """`not logged`, or the line that has the benchmark's name and cannot be read."""
    for file in location.files:
        for problem in log.read(file).problems:
            if log.names(file, problem.line, "submission_benchmark"):
                return f"in a line that cannot be read, line {problem.line} of {file.name}: {problem.message}"
    for file in location.files:
        reason = log.no_event(file, "submission_benchmark")
        if reason is not None:
            return reason
    return "not logged"


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
