"""Score of an entry from records and verdicts, or the reasons for none. The object of `score.json`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train_bench.judge.checks import verified
from train_bench.judge.checks.clock import TIME
from train_bench.judge.checks.ending import STATUS
from train_bench.judge.checks.ranks import disturbance
from train_bench.judge.checks.witnesses import CLOCK
from train_bench.judge.compliance import RunVerdict
from train_bench.judge.finding import BREAKS
from train_bench.judge.null_reasons import add_null_reasons
from train_bench.judge.official.official_verdict import OfficialVerdict
from train_bench.judge.patterns import time_copies
from train_bench.judge.rcp import FAIL, MISSING, PASS, RcpVerdict
from train_bench.judge.state import MISSING_RUNS, NOT_CONVERGED, state_of
from train_bench.judge.statistics import olympic_interval, olympic_mean, relative_half_width
from train_bench.logs.log import NO_CONTENT
from train_bench.logs.record import RunRecord
from train_bench.rules.ruleset import BenchmarkRules

MOST_NAMES = 3
"""Names of logs that one reason lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Facts on logs from their folders and a campaign's plan; None if unknown.

    changes the options that made another task of the benchmark redefined values that differ from the
    benchmark as it is defined here, though the plan calls them no change overruled objections that `package
    --force` overruled warnings warnings, which invalidate nothing declared_runs number of planned runs batch
    bad ends of jobs in a batch system scaling `strong` or `weak`, in HPC rounds alone a single log given by
    itself measured_by who measured the quality of a user's own program
    """

    submitter: str | None = None
    system: str | None = None
    division: str | None = None
    variant: str | None = None
    launcher: str | None = None
    world_size: int | None = None
    seeds: str | None = None
    changes: tuple[str, ...] = ()
    redefined: tuple[str, ...] = ()
    overruled: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    declared_runs: int | None = None
    batch: tuple[str, ...] = ()
    scaling: str | None = None
    alone: bool = False
    measured_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakScaling:
    """Many models at once (HPC rounds): the number of runs that count, the accelerators of each, and the minutes
    from the start of the first to the end of the last of them; `accelerators` is None if logs differ or do not say."""

    models: int
    accelerators: int | None
    minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """One run in the score. `minutes` is None if the log has no end; a run outside the window of runs that make the
    result is not `counted`. `evaluation_minutes` is the time from the evaluation before the last (from the start,
    without one) to the last: the target was reached somewhere in it, so the time is known to that."""

    index: int
    file: str
    seed: int | None
    status: str
    converged: bool
    compliant: bool
    officially_compliant: bool
    minutes: float | None
    quality: Any
    convergence: float | None
    samples: float | None
    samples_per_second: float | None
    processor_lost: float | None
    counted: bool
    dropped: bool
    sha256: str | None = None
    times_digest: str | None = None
    started_ms: int | None = None
    evaluation_minutes: float | None = None
    peak_host_bytes: int | None = None
    peak_device_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """`olympic_minutes` is the mean time-to-train without the extremes, `score_minutes` the same times the RCP
    factor if the round applies it (`rcp_factor_applied`, else 1); all None with too few converged runs. Deviation
    (ddof 1) and interval are of all converged runs. Of `weak` scaling, `score_minutes` is the time to train all models,
    and there is no olympic mean. `disturbed` is a sentence if other processes had the processors, `verified` one if
    kept weights were evaluated again. `official_verdict` is that of the official tools. `valid` is None of a single log
    that breaks no rule: it is no result. `measured_by` says who measured the quality of a user's own program."""

    submitter: str | None
    system: str | None
    division: str | None
    benchmark: str
    variant: str | None
    reference: str
    ruleset: str
    ruleset_digest: str
    points_digest: str | None
    launcher: str | None
    world_size: int | None
    seeds: str | None
    global_batch_size: int | None
    target: str
    unit: str
    runs_required: int
    runs: tuple[ScoredRun, ...]
    olympic_minutes: float | None
    stdev_minutes: float | None
    ci95_minutes: tuple[float, float] | None
    samples_to_target: float | None
    samples_per_second: float | None
    rcp: RcpVerdict
    weak: WeakScaling | None
    rcp_factor_applied: float | None
    score_minutes: float | None
    disturbed: str | None
    verified: str | None
    valid: bool | None
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    official_verdict: OfficialVerdict
    measured_by: str | None = None

    @property
    def state(self) -> str:
        """`valid`, `not valid` or `incomplete`; of a single log that breaks no rule, `no result`."""
        return state_of(self.valid, self.reasons)

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON, with the reasons for values that are null."""
        return add_null_reasons(asdict(self) | {"state": self.state})


def window_of(records: Sequence[RunRecord], times: Sequence[float], rules: BenchmarkRules) -> list[int]:
    """Window of the result among more than N runs (rules, "Benchmark results"): in the order in which they were
    started, of all windows of N runs the one whose score is the median. Positions in `records`.

    Of an even number of windows it is the slower one in the middle.
    """
    order = sorted(range(len(records)), key=lambda at: (records[at].started_ms or 0, records[at].index))
    windows = [order[start : start + rules.runs] for start in range(len(order) - rules.runs + 1)]
    scored = sorted(windows, key=lambda window: olympic_mean([times[at] for at in window], rules.drop))
    return sorted(scored[len(scored) // 2])


def make_score(
    rules: BenchmarkRules,
    records: Sequence[RunRecord],
    verdicts: Sequence[RunVerdict],
    compare: Callable[[Sequence[int]], RcpVerdict],
    points_digest: str | None,
    origin: Origin,
    official: OfficialVerdict,
    broken: Sequence[str] = (),
) -> Score:
    """Judge the runs of an entry as a whole (rules, "Benchmark results": a run that did not converge counts as the
    slowest, more of them than are dropped invalidate the result). In rounds that are not strict a run that breaks a
    rule counts like one that did not converge, as in the package checker. `compare` gives the RCP verdict over the
    runs at the positions that make the result. `broken` are the rules that the entry breaks as a whole."""
    times = [
        record.minutes if counts(verdict, rules) and record.minutes is not None else math.inf
        for record, verdict in zip(records, verdicts, strict=True)
    ]
    weak = _weak(records, verdicts, rules) if origin.scaling == "weak" else None
    declared = weak is None and origin.declared_runs == len(records) > rules.runs
    window = window_of(records, times, rules) if declared else list(range(len(records)))
    drop = 0 if origin.scaling == "weak" else rules.drop
    dropped = {window[at] for at in _dropped([times[at] for at in window], drop)}
    kept = [at for at in window if at not in dropped]
    chosen = [times[at] for at in window]
    several = origin.scaling != "weak" and len(window) > 2 * rules.drop
    olympic = olympic_mean(chosen, rules.drop) if several else math.inf
    finite = [time for time in chosen if math.isfinite(time)]
    rcp = compare(window)
    known = math.isfinite(olympic)
    factor = rcp.factor if rules.factor_applied and rcp.factor is not None else 1.0
    samples, speed = _factors([records[at] for at in kept]) if known else (None, None)
    chosen_records, chosen_verdicts = [records[at] for at in window], [verdicts[at] for at in window]
    reasons = _reasons(rules, chosen_records, chosen_verdicts, rcp, origin, len(records))
    single = origin.alone and rules.runs > 1 and not reasons and not broken
    sizes = {record.global_batch_size for record in records}
    return Score(
        submitter=origin.submitter,
        system=origin.system,
        division=origin.division,
        benchmark=rules.name,
        variant=origin.variant,
        reference=rules.reference,
        ruleset=rules.ruleset,
        ruleset_digest=rules.digest,
        points_digest=points_digest,
        launcher=origin.launcher,
        world_size=origin.world_size,
        seeds=origin.seeds,
        global_batch_size=sizes.pop() if len(sizes) == 1 else None,
        target=str(rules.target),
        unit=rules.unit.value,
        runs_required=rules.runs,
        runs=tuple(
            _scored(record, verdict, counted=at in window, dropped=at in dropped)
            for at, (record, verdict) in enumerate(zip(records, verdicts, strict=True))
        ),
        olympic_minutes=olympic if known else None,
        stdev_minutes=statistics.stdev(finite) if len(finite) > 1 else None,
        ci95_minutes=_interval(
            chosen,
            rules.drop,
            rcp,
            [record.convergence for record in chosen_records],
            applied=rules.factor_applied,
        )
        if known and len(finite) > 1 and min(finite) > 0 and not _copies(chosen_records)
        else None,
        samples_to_target=samples,
        samples_per_second=speed,
        rcp=rcp,
        weak=weak,
        rcp_factor_applied=factor if known else None,
        score_minutes=olympic * factor if known else weak.minutes if weak is not None else None,
        disturbed=disturbance(records, _timed_well(records, verdicts)),
        verified=verified.in_a_sentence(records, rules.target),
        valid=None if single else not reasons and not broken,
        reasons=(_single_log(rules, verdicts),) if single else (*reasons, *broken),
        warnings=(*origin.warnings, *_weak_scaling_sentence(weak)),
        official_verdict=official,
        measured_by=origin.measured_by,
    )


def _weak(
    records: Sequence[RunRecord], verdicts: Sequence[RunVerdict], rules: BenchmarkRules
) -> WeakScaling | None:
    """Weak scaling as in the official tools: runs that converged and comply, if they are as many as the round
    demands."""
    trained = [
        record
        for record, verdict in zip(records, verdicts, strict=True)
        if counts(verdict, rules) and record.started_ms is not None and record.minutes is not None
    ]
    if len(trained) < rules.runs:
        return None
    started = [record.started_ms or 0 for record in trained]
    ended = [start + (record.minutes or 0) * 60_000 for start, record in zip(started, trained, strict=True)]
    sizes = {record.accelerators for record in trained}
    return WeakScaling(
        models=len(trained),
        accelerators=sizes.pop() if len(sizes) == 1 else None,
        minutes=(max(ended) - min(started)) / 60_000,
    )


def _weak_scaling_sentence(weak: WeakScaling | None) -> list[str]:
    if weak is None:
        return []
    size = "an unknown number of" if weak.accelerators is None else weak.accelerators
    return [
        f"Weak scaling: {weak.models} models on {size} accelerators each; the score is the time to train all of them."
    ]


def counts(verdict: RunVerdict, rules: BenchmarkRules) -> bool:
    """True if the time of a run counts, False if it counts as a failed run."""
    return verdict.converged and (verdict.compliant or rules.strict)


def _timed_well(records: Sequence[RunRecord], verdicts: Sequence[RunVerdict]) -> list[RunRecord]:
    """Runs that count and whose clocks hold: no other says anything of their speeds."""
    return [
        record
        for record, verdict in zip(records, verdicts, strict=True)
        if verdict.converged
        and verdict.compliant
        and not any(finding.check in (TIME, CLOCK) for finding in verdict.findings)
    ]


def _dropped(times: Sequence[float], drop: int) -> set[int]:
    order = sorted(range(len(times)), key=lambda position: times[position])
    return set(order[:drop]) | set(order[len(order) - drop :]) if len(times) > 2 * drop else set()


def _copies(records: Sequence[RunRecord]) -> bool:
    """True if a log is a copy of another, so that the times are no independent ones."""
    known = [record.sha256 for record in records if record.sha256 != NO_CONTENT]
    timed = [record.times_digest for record in records if record.times_digest is not None]
    return len(set(known)) < len(known) or len(set(timed)) < len(timed) or bool(time_copies(records))


def _interval(
    times: Sequence[float], drop: int, rcp: RcpVerdict, convergences: Sequence[float | None], *, applied: bool
) -> tuple[float, float]:
    """Confidence interval of the score: that of the olympic mean, and, where the RCP factor applies, that of the larger
    of it and the mean times reference over convergence.

    The factor is made of the same runs: a run of fewer epochs is as much shorter as its factor is larger. So the second
    interval is of the times of an epoch, run by run (delta method on logarithms), and the score is the larger of the
    two means, because a factor is at least 1. The larger of their ends covers it (0223).
    """
    low, high = olympic_interval(times, drop)
    paired = [
        time / convergence if math.isfinite(time) and convergence else math.inf
        for time, convergence in zip(times, convergences, strict=True)
    ]
    pairs = sum(map(math.isfinite, paired))
    usable = pairs == sum(map(math.isfinite, times)) and pairs > 1
    if not applied or rcp.verdict != PASS or rcp.mean is None or not rcp.submission_mean or not usable:
        return low, high
    scaled = olympic_mean(times, drop) * rcp.mean / rcp.submission_mean
    per_unit = relative_half_width(paired)
    return max(low, scaled / per_unit), max(high, scaled * per_unit)


def _scored(record: RunRecord, verdict: RunVerdict, *, counted: bool, dropped: bool) -> ScoredRun:
    return ScoredRun(
        index=record.index,
        file=Path(record.file).name,
        seed=record.seed,
        status=record.status,
        converged=verdict.converged,
        compliant=verdict.compliant,
        officially_compliant=verdict.officially_compliant,
        minutes=record.minutes,
        quality=record.quality,
        convergence=record.convergence,
        samples=record.samples,
        samples_per_second=record.samples_per_second,
        processor_lost=record.processor_lost,
        counted=counted,
        dropped=dropped,
        sha256=record.sha256,
        times_digest=record.times_digest,
        started_ms=record.started_ms,
        evaluation_minutes=_evaluation_minutes(record),
        peak_host_bytes=record.peak_host_bytes,
        peak_device_bytes=record.peak_device_bytes,
    )


def _evaluation_minutes(record: RunRecord) -> float | None:
    """Time between the last two evaluations of a run; None without an evaluation or a start."""
    times = [one.time_ms for one in record.evaluations]
    if not times or record.started_ms is None:
        return None
    return max(0, times[-1] - (times[-2] if len(times) > 1 else record.started_ms)) / 60_000


def _factors(kept: Sequence[RunRecord]) -> tuple[float | None, float | None]:
    """Mean samples to the target of the kept runs, and the speed that turns them into their mean time."""
    samples = [record.samples for record in kept if record.samples is not None]
    minutes = [record.minutes for record in kept if record.minutes is not None]
    if len(samples) != len(kept) or len(minutes) != len(kept) or sum(minutes) <= 0:
        return None, None
    return statistics.fmean(samples), sum(samples) / (sum(minutes) * 60)


def _reasons(
    rules: BenchmarkRules,
    records: Sequence[RunRecord],
    verdicts: Sequence[RunVerdict],
    rcp: RcpVerdict,
    origin: Origin,
    in_all: int,
) -> list[str]:
    reasons = []
    required = max(rules.runs, origin.declared_runs or 0)
    if in_all < required and not origin.alone:
        reasons.append(" ".join((f"{MISSING_RUNS}{in_all} of {required} runs.", *origin.batch)))
    elif len(records) > rules.runs and origin.scaling != "weak":
        reasons.append(
            f"There are {len(records)} runs; {rules.ruleset} takes exactly {rules.runs}, or the median "
            "window of more runs that were declared before the first."
        )
    failed = [
        record.index for record, verdict in zip(records, verdicts, strict=True) if not counts(verdict, rules)
    ]
    allowed = rules.runs if origin.alone else rules.drop  # a log by itself may be one of the failed runs
    if len(failed) > allowed:
        reasons.append(
            f"{failed_runs(records, verdicts, rules)}; at most {allowed} may fail, counted as the slowest."
        )
    if rules.strict or origin.alone or len(failed) > allowed:
        reasons += _violations(records, verdicts)
    if origin.scaling == "weak":
        trained = len(records) - len(failed)
        if trained < rules.runs <= in_all:
            reasons.append(f"{trained} models were trained; weak scaling takes {rules.runs} or more.")
        if len({record.accelerators for record in records}) > 1:
            reasons.append(
                "The logs name different numbers of accelerators; models of weak scaling have equally "
                "many each."
            )
    if rcp.verdict in (FAIL, MISSING) and len(records) >= rules.runs:
        reasons.append(f"RCP {rcp.verdict}: {rcp.message}.")
    if origin.changes:
        reasons.append(f"Changed definition of the benchmark: {', '.join(origin.changes)}.")
    if origin.redefined:
        reasons.append(
            "The plan was made with another definition of the benchmark than the local one: "
            f"{', '.join(origin.redefined)}."
        )
    if origin.overruled:
        reasons.append(f"Packaged with --force despite: {'; '.join(origin.overruled)}.")
    return reasons


def _single_log(rules: BenchmarkRules, verdicts: Sequence[RunVerdict]) -> str:
    """Sentence on a log that was given by itself and breaks no rule."""
    slow = "" if all(verdict.converged for verdict in verdicts) else ", but its run did not converge"
    return f"this log follows the rules{slow}; 1 of {rules.runs} runs, no score"


def failed_runs(records: Sequence[RunRecord], verdicts: Sequence[RunVerdict], rules: BenchmarkRules) -> str:
    """Runs that do not count, by cause: a run that breaks rules may well have converged."""
    slow, unsaid = [], []
    for record, verdict in zip(records, verdicts, strict=True):
        if _without_status(verdict):
            unsaid.append(record.index)
        elif not verdict.converged:
            slow.append(record.index)
    broken = [
        record.index
        for record, verdict in zip(records, verdicts, strict=True)
        if verdict.converged and not counts(verdict, rules)
    ]
    causes = (
        (slow, NOT_CONVERGED),
        (unsaid, "have no status that counts"),
        (broken, "converged but broke the rules"),
    )
    return " and ".join(
        f"{len(indices)} run(s) {what} (index {', '.join(map(str, indices))})"
        for indices, what in causes
        if indices
    )


def _without_status(verdict: RunVerdict) -> bool:
    """True if the status of a run is missing or misspelt."""
    return any(finding.check == STATUS for finding in verdict.findings)


def _violations(records: Sequence[RunRecord], verdicts: Sequence[RunVerdict]) -> list[str]:
    """Logs that break rules, with the first violation of each; those with the same one in one sentence."""
    logs: dict[str, list[str]] = {}
    for record, verdict in zip(records, verdicts, strict=True):
        messages = [finding.message for finding in verdict.findings if finding.grade == BREAKS]
        if messages:
            more = f" And {len(messages) - 1} more violation(s)." if len(messages) > 1 else ""
            logs.setdefault(f"{messages[0]}{more}", []).append(Path(record.file).name)
    return [
        f"{_listed(names)} {'breaks' if len(names) == 1 else 'break'} the rules: {said}"
        for said, names in logs.items()
    ]


def _listed(names: Sequence[str]) -> str:
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2} more"
