"""The logs of one entry -> a judgement. Works years later, without torch, on other people's logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from train_bench.errors import LogError
from train_bench.judge import rcp
from train_bench.judge.checks import campaign_checks, unverifiable
from train_bench.judge.checks.against_plan import Planned, check_entry_against_plan, planned_of
from train_bench.judge.checks.campaign_checks import Changes
from train_bench.judge.checks.convergence import check_against_rcps
from train_bench.judge.checks.review import CLOSED, OPEN
from train_bench.judge.checks.submission import check_scaling, check_submission_files, stated_divisions
from train_bench.judge.compliance import RunVerdict, judge_run, judge_together, says_open, with_findings
from train_bench.judge.energy import Energy, kept_energy
from train_bench.judge.finding import BREAKS, REVIEW, Finding
from train_bench.judge.locate import Location, badly_ended
from train_bench.judge.official.official_verdict import official_verdict
from train_bench.judge.published.peers import Peers
from train_bench.judge.score import Origin, Score, counts, make_score
from train_bench.logs import log
from train_bench.logs.log import Log
from train_bench.logs.record import RunRecord, number_of, read_record
from train_bench.logs.restarts import Restarts, restarts_of, together
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules

OPEN_ENTRY = rcp.RcpVerdict(
    verdict=rcp.NONE, message="the open division has no convergence check", factor=1.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Records, verdicts (one per record), what was found beside the logs, and the score of an entry; of a published one
    also its peers, where some are known. `restarts` is what checkpoints and failures cost runs that had such, `looked`
    what the caller of `judge_entry` kept of each log."""

    location: Location
    records: tuple[RunRecord, ...]
    verdicts: tuple[RunVerdict, ...]
    findings: tuple[Finding, ...]
    score: Score
    peers: Peers | None = None
    restarts: Restarts | None = None
    looked: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """How people call the entry."""
        parts = (self.score.submitter, self.score.system, self.score.benchmark)
        return "/".join(part for part in parts if part)

    @property
    def origin(self) -> dict[str, str | None]:
        """Where the logs lie, and of a campaign when it began and from which revision."""
        plan = self.location.plan
        return {
            "folder": str(self.location.folder),
            "created": _text(plan.get("created")),
            "revision": _text(plan.get("revision")),
        }

    @property
    def energy(self) -> Energy | None:
        """Of the runs that make the score, where power logs lie beside them."""
        left_out = [run.dropped or not run.counted for run in self.score.runs]
        return kept_energy(self.records, left_out)

    def energy_as_json(self) -> dict[str, Any] | None:
        """What `score` says of it."""
        return None if (energy := self.energy) is None else energy.as_json()

    def as_json(self) -> dict[str, Any]:
        """The score's object with all findings added."""
        score = self.score.as_json()
        for run, verdict in zip(score["runs"], self.verdicts, strict=True):
            run["findings"] = [finding.as_json() for finding in verdict.findings]
        findings = [finding.as_json() for finding in self.findings]
        return score | self.origin | {"peers": self.peers_as_json(), "findings": findings}

    def peers_as_json(self) -> dict[str, Any] | None:
        """What `judge` and `score` say of them."""
        return None if self.peers is None else self.peers.as_json()


def judge_entry(
    location: Location,
    *,
    rcp_folders: Sequence[Path],
    changes: Changes | None = None,
    look: Callable[[Log], Any] | None = None,
) -> Judgement:
    """Judge the logs of one entry, by the plan beside them where there is one.

    `changes` says what a planned configuration has changed of the benchmark as it is defined here. What `look` makes of
    each log is kept with the judgement.
    Raises `LogError` where nothing says which benchmark they are.
    """
    rounds = ruleset.load(location.ruleset)
    rules = rounds.benchmark(str(location.plan.get("benchmark") or benchmark_of(location, rounds)))
    planned, world_size = planned_of(location), _integer(location.plan_or_package.get("world_size"))
    of_command = location.of_command
    judge = partial(
        _judge_file, rules=rules, planned=planned, world_size=world_size, of_command=of_command, look=look
    )
    judged = [judge(file) for file in sorted(location.files, key=_order)]
    records = tuple(record for record, *_ in judged)
    stated = stated_divisions(location, records)
    closed = set(stated) != {OPEN}  # what is said differently, or not at all, is held to the stricter rules
    division = (CLOSED if closed else OPEN) if stated else None
    alone = [
        judge(Path(record.file), closed=True)[1] if closed and says_open(record) else verdict
        for record, verdict, *_ in judged
    ]
    made = [
        (
            *campaign_checks.check_outcome(location, record, rules),
            *campaign_checks.check_kept_weights(record, rules),
        )
        for record in records
    ]
    verdicts = tuple(map(with_findings, records, judge_together(records, alone, rules, planned), made))
    beside = (
        *check_submission_files(location, records, rules),
        *check_entry_against_plan(location, planned, records, rules),
        *campaign_checks.check_injected_faults(location, is_open=not closed),
    )
    points = rcp.load(rules, rcp_folders)
    points_digest = rcp.digest(points)
    changed = tuple(campaign_checks.check_campaign(location, rules, points_digest))
    changed += tuple(campaign_checks.check_budget(location, records))
    if of_command:
        told = [keys for _, _, keys, *_ in judged]
        changed += tuple(unverifiable.check_program_keys(location.folder, told, world_size))

    def compare(window: Sequence[int]) -> rcp.RcpVerdict:
        if not closed:
            return OPEN_ENTRY
        return _compared([records[at] for at in window], [verdicts[at] for at in window], rules, points)

    # The official package checker goes by the description, else by the first log.
    official = official_verdict(
        records, verdicts, rules, closed=stated[:1] != (OPEN,), weak=location.scaling == "weak"
    )
    origin = replace(
        _origin(location, records, rules, division),
        redefined=campaign_checks.redefined_values(location, rules, changes),
        warnings=_warnings(changed, records, made),
    )
    broken = [finding.message for finding in beside if finding.grade == BREAKS]
    score = make_score(rules, records, verdicts, compare, points_digest, origin, official, broken)
    findings = (
        *changed,
        *beside,
        *check_scaling(location, score.rcp),
        *check_against_rcps(location, records, score.rcp, points if closed else ()),
    )
    return Judgement(
        location=location,
        records=records,
        verdicts=verdicts,
        findings=findings,
        score=score,
        restarts=together(told for _, _, _, told, _ in judged),
        looked=() if look is None else tuple(looked for *_, looked in judged),
    )


def _warnings(
    changed: Sequence[Finding], records: Sequence[RunRecord], made: Sequence[Sequence[Finding]]
) -> tuple[str, ...]:
    """What `campaign_checks` found that invalidates nothing, in sentences."""
    of_runs = [
        f"{Path(record.file).name}: {one.message}"
        for record, findings in zip(records, made, strict=True)
        for one in findings
        if one.grade == REVIEW
    ]
    return (*(one.message for one in changed), *of_runs)


def _order(file: Path) -> tuple[int, str]:
    return number_of(file), file.name


def _judge_file(
    file: Path,
    *,
    rules: BenchmarkRules,
    planned: Planned | None,
    world_size: int | None,
    of_command: bool,
    closed: bool = False,
    look: Callable[[Log], Any] | None = None,
) -> tuple[RunRecord, RunVerdict, frozenset[str], Restarts | None, Any]:
    """Its record, its verdict, which keys it has that only some programs tell, what failures cost, and what `look`
    makes of it. The log itself is dropped: of an entry, one file is in memory at a time."""
    record, read = read_record(file, rules)
    verdict = judge_run(
        record, read, rules, planned, closed=closed, world_size=world_size, of_command=of_command
    )
    looked = None if look is None else look(read)
    return record, verdict, unverifiable.logged_keys(read), restarts_of(read), looked


def _compared(
    records: Sequence[RunRecord],
    verdicts: Sequence[RunVerdict],
    rules: BenchmarkRules,
    points: Sequence[rcp.Point],
) -> rcp.RcpVerdict:
    convergences = [
        record.convergence if counts(verdict, rules) else None
        for record, verdict in zip(records, verdicts, strict=True)
    ]
    compared = rcp.verdict(points, rules, common_batch_size(records, rules), convergences)
    counted = sorted({record.counted for record in records if record.convergence is not None})
    if rules.counted in ("epoch_num", "samples_count") or not counted:
        return compared
    return replace(compared, message=f"{compared.message}; progress was read from {' and '.join(counted)}")


def common_batch_size(records: Sequence[RunRecord], rules: BenchmarkRules) -> int | None:
    """The global batch size of all runs. Where an erratum allows others, it is that of the majority, if not
    more runs differ than may be dropped."""
    sizes = Counter(record.global_batch_size for record in records if record.global_batch_size is not None)
    if len(sizes) == 1:
        return next(iter(sizes))
    usual = sizes.most_common(1)
    mixed = any(erratum.mixed_batch_sizes for erratum in rules.errata)
    if mixed and usual and sizes.total() - usual[0][1] <= rules.drop:
        return usual[0][0]
    return None


def _origin(
    location: Location, records: Sequence[RunRecord], rules: BenchmarkRules, division: str | None
) -> Origin:
    """Runs of a reference convergence point were declared for that, and are no result."""
    plan = location.plan_or_package
    of_a_result = plan.get("runs_required") == rules.runs
    first = records[0].announced if records else {}
    jobs, changes = plan.get("jobs"), plan.get("changes")
    return Origin(
        submitter=location.submitter or first.get("submission_org"),
        system=location.system or first.get("submission_platform"),
        division=division,
        variant=_text(plan.get("variant")),
        launcher=_text(plan.get("launcher")),
        world_size=_integer(plan.get("world_size")),
        seeds=_text(plan.get("seeds")),
        changes=_texts(changes),
        overruled=_texts(plan.get("overruled")),
        declared_runs=len(jobs) if isinstance(jobs, list) and of_a_result else None,
        batch=badly_ended(location.folder),
        scaling=location.scaling,
        alone=location.alone,
    )


def benchmark_of(location: Location, rounds: ruleset.Ruleset) -> str:
    """The name that most logs give, else that of the folder."""
    values = [log.first_value(file, "submission_benchmark") for file in location.files]
    named = Counter(value for value in values if isinstance(value, str))
    known = [name for name, _ in named.most_common() if name in rounds.benchmarks]
    if known:
        return known[0]
    if location.benchmark in rounds.benchmarks:
        return str(location.benchmark)
    seen = ", ".join(sorted(map(repr, named))) or "not logged"
    raise LogError(
        f"No log in {location.folder} names a benchmark of {rounds.name} (submission_benchmark is {seen}); "
        f"known: {', '.join(sorted(rounds.benchmarks))}."
    )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
