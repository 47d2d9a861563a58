"""Records and verdicts -> a score, or the reasons why there is none. The object of `score.json`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train_bench.judge.compliance import RunVerdict
from train_bench.judge.rcp import FAIL, MISSING, RcpVerdict
from train_bench.judge.record import RunRecord
from train_bench.judge.statistics import confidence_interval, olympic_mean
from train_bench.rules.ruleset import BenchmarkRules, Ruleset


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a campaign's plan says of its logs; all None for logs that came alone. `changes` are the
    options that made another task of the benchmark, `batch` how jobs of a batch system ended badly."""

    variant: str | None = None
    launcher: str | None = None
    world_size: int | None = None
    seeds: str | None = None
    changes: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """One run in the score. `minutes` is None where the log has no end."""

    index: int
    file: str
    seed: int | None
    status: str
    compliant: bool
    minutes: float | None
    quality: Any
    convergence: float | None
    samples: float | None
    samples_per_second: float | None
    dropped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """`olympic_minutes` is the mean time-to-train without the extremes, `score_minutes` the same times the
    RCP factor; both None where there are too few converged runs. Deviation (ddof 1) and interval are of
    all converged runs."""

    benchmark: str
    variant: str | None
    reference: str
    ruleset: str
    ruleset_digest: str
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
    score_minutes: float | None
    valid: bool
    reasons: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self)


def make_score(
    ruleset: Ruleset,
    rules: BenchmarkRules,
    records: Sequence[RunRecord],
    verdicts: Sequence[RunVerdict],
    rcp: RcpVerdict,
    origin: Origin,
) -> Score:
    """Judge a campaign as a whole (rules, "Benchmark results": a run that did not converge counts as the
    slowest, more of them than are dropped invalidate the result)."""
    times = [
        record.minutes if verdict.converged and record.minutes is not None else math.inf
        for record, verdict in zip(records, verdicts, strict=True)
    ]
    dropped = _dropped(times, rules.drop)
    kept = [position for position in range(len(times)) if position not in dropped]
    olympic = olympic_mean(times, rules.drop) if len(times) > 2 * rules.drop else math.inf
    finite = [time for time in times if math.isfinite(time)]
    scored = [
        _scored(record, verdict, dropped=position in dropped)
        for position, (record, verdict) in enumerate(zip(records, verdicts, strict=True))
    ]
    known = math.isfinite(olympic)
    factor = rcp.factor
    samples, speed = _factors([records[position] for position in kept]) if known else (None, None)
    reasons = _reasons(rules, records, verdicts, rcp)
    if len(records) < rules.runs:
        reasons += origin.batch
    if origin.changes:
        reasons.append(f"Not the benchmark as it is defined: {', '.join(origin.changes)}.")
    sizes = {record.global_batch_size for record in records}
    return Score(
        benchmark=rules.name,
        variant=origin.variant,
        reference=rules.reference,
        ruleset=ruleset.name,
        ruleset_digest=ruleset.digest,
        launcher=origin.launcher,
        world_size=origin.world_size,
        seeds=origin.seeds,
        global_batch_size=sizes.pop() if len(sizes) == 1 else None,
        target=str(rules.target),
        unit=rules.unit.value,
        runs_required=rules.runs,
        runs=tuple(scored),
        olympic_minutes=olympic if known else None,
        stdev_minutes=statistics.stdev(finite) if len(finite) > 1 else None,
        ci95_minutes=confidence_interval(finite) if len(finite) > 1 else None,
        samples_to_target=samples,
        samples_per_second=speed,
        rcp=rcp,
        score_minutes=olympic * factor if known else None,
        valid=not reasons,
        reasons=tuple(reasons),
    )


def _dropped(times: Sequence[float], drop: int) -> set[int]:
    order = sorted(range(len(times)), key=lambda position: times[position])
    return set(order[:drop]) | set(order[len(order) - drop :]) if len(times) > 2 * drop else set()


def _scored(record: RunRecord, verdict: RunVerdict, *, dropped: bool) -> ScoredRun:
    return ScoredRun(
        index=record.index,
        file=Path(record.file).name,
        seed=record.seed,
        status=record.status,
        compliant=verdict.compliant,
        minutes=record.minutes,
        quality=record.quality,
        convergence=record.convergence,
        samples=record.samples,
        samples_per_second=record.samples_per_second,
        dropped=dropped,
    )


def _factors(kept: Sequence[RunRecord]) -> tuple[float | None, float | None]:
    """Mean samples to the target of the kept runs, and the speed that turns them into their mean time."""
    samples = [record.samples for record in kept if record.samples is not None]
    minutes = [record.minutes for record in kept if record.minutes is not None]
    if len(samples) != len(kept) or len(minutes) != len(kept) or sum(minutes) <= 0:
        return None, None
    return statistics.fmean(samples), sum(samples) / (sum(minutes) * 60)


def _reasons(
    rules: BenchmarkRules, records: Sequence[RunRecord], verdicts: Sequence[RunVerdict], rcp: RcpVerdict
) -> list[str]:
    reasons = []
    if len(records) < rules.runs:
        reasons.append(f"Incomplete: {len(records)} of {rules.runs} runs are there.")
    elif len(records) > rules.runs:
        reasons.append(f"There are {len(records)} runs; {rules.ruleset} takes exactly {rules.runs}.")
    failed = [
        record.index for record, verdict in zip(records, verdicts, strict=True) if not verdict.converged
    ]
    if len(failed) > rules.drop:
        listed = ", ".join(str(index) for index in failed)
        reasons.append(
            f"{len(failed)} runs did not converge (index {listed}); at most {rules.drop} may, counted as slowest."
        )
    for record, verdict in zip(records, verdicts, strict=True):
        if not verdict.compliant:
            reasons.append(f"{Path(record.file).name} breaks the rules; `train-bench judge` says where.")
    if rcp.verdict in (FAIL, MISSING) and len(records) >= rules.runs:
        reasons.append(f"RCP {rcp.verdict}: {rcp.message}.")
    return reasons
