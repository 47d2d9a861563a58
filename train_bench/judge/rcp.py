"""Reference convergence points: does a submission need as much training as the reference does?

The statistics are those of the official checker, closed form instead of bisection: mean without the
`drop` lowest and highest values, population deviation of all values, pruning of points that
their neighbours make superfluous, interpolation over the batch size.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train_bench.errors import LogError
from train_bench.judge.statistics import olympic_mean, smallest_acceptable_mean
from train_bench.rules.ruleset import BenchmarkRules, package_folder

VALUES = ("Epochs to converge", "samples to converge")
PASS, FAIL, MISSING, NONE = "pass", "fail", "missing", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Convergence of the reference at one batch size; `count` is the number of runs behind it."""

    batch_size: int
    mean: float
    deviation: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RcpVerdict:
    """`verdict` is pass, fail, missing (no point near this batch size) or none (the benchmark has no
    points at all). `mean` and `bound` are the reference's mean and the lowest mean that passes, in the
    benchmark's unit; `submission_mean` is what was compared. `factor` makes a result comparable that
    converged faster than the reference (at least 1; 1 unless the verdict is pass)."""

    verdict: str
    message: str
    factor: float
    mean: float | None = None
    bound: float | None = None
    submission_mean: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def load(rules: BenchmarkRules, folder: Path) -> tuple[Point, ...]:
    """All points of a benchmark: ours from `folder`/<round>/<reference>.json, and those of official rounds
    from the installed package, which count where both have a batch size. Empty where there are none."""
    official = package_folder("rcp_checker") / rules.ruleset.replace("-", "_")
    points = {
        point.batch_size: point
        for path in (
            folder / rules.ruleset / f"{rules.reference}.json",
            official / f"rcps_{rules.reference}.json",
        )
        for point in _read(path, rules)
    }
    return tuple(sorted(points.values(), key=lambda point: point.batch_size))


def _read(path: Path, rules: BenchmarkRules) -> list[Point]:
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text(encoding="utf-8")).values()
        return [_point(record, rules.drop) for record in records if record["Benchmark"] == rules.name]
    except (ValueError, KeyError, AttributeError, TypeError, StopIteration) as error:
        raise LogError(f"{path} is no file of reference convergence points: {error!r}.") from error


def _point(record: dict[str, Any], drop: int) -> Point:
    values = next(record[name] for name in VALUES if name in record)
    return Point(
        batch_size=record["BS"],
        mean=olympic_mean(values, drop),
        deviation=statistics.pstdev(values),
        count=len(values),
    )


def prune(points: Sequence[Point]) -> tuple[Point, ...]:
    """Without points of smaller batch size than the fastest one, and without those that converge more
    slowly than their neighbours interpolate (one walk, stepping back after a removal)."""
    if not points:
        return ()
    fastest = min(points, key=lambda point: point.mean)
    kept = [point for point in points if point.batch_size >= fastest.batch_size]
    index = 1
    while index < len(kept) - 1:
        between = _interpolate(kept[index].batch_size, kept[index - 1], kept[index + 1])
        if kept[index].mean > between.mean:
            del kept[index]
            index -= 1
        index += 1
    return tuple(kept)


def _interpolate(batch_size: int, low: Point, high: Point) -> Point:
    share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
    return Point(
        batch_size=batch_size,
        mean=low.mean + share * (high.mean - low.mean),
        deviation=low.deviation + share * (high.deviation - low.deviation),
        count=0,
    )


def verdict(
    points: Sequence[Point],
    rules: BenchmarkRules,
    batch_size: int | None,
    convergences: Sequence[float | None],
) -> RcpVerdict:
    """Compare the convergence of N runs (None: did not converge) with the points of a benchmark."""
    if not points:
        return RcpVerdict(verdict=NONE, message="there are no reference convergence points", factor=1.0)
    if batch_size is None:
        return RcpVerdict(verdict=MISSING, message="the logs give no single batch size", factor=1.0)
    if len(convergences) <= 2 * rules.drop:
        message = f"too few runs to compare: {len(convergences)}"
        return RcpVerdict(verdict=MISSING, message=message, factor=1.0)
    failed = sum(value is None for value in convergences)
    if failed > rules.drop:
        message = f"insufficient convergence: {failed} of {len(convergences)} runs did not converge"
        return RcpVerdict(verdict=FAIL, message=message, factor=1.0)
    mean = olympic_mean([math.inf if value is None else value for value in convergences], rules.drop)
    kept = prune(points)
    exact = [point for point in kept if point.batch_size == batch_size]
    lower = [point for point in kept if point.batch_size < batch_size]
    higher = [point for point in kept if point.batch_size > batch_size]
    if exact:
        return _compared(
            exact[0], exact[0].count - 2 * rules.drop, mean, rules, f"point at batch size {batch_size}"
        )
    if lower and higher:
        low, high = lower[-1], higher[0]
        between = f"interpolated between batch sizes {low.batch_size} and {high.batch_size}"
        return _compared(_interpolate(batch_size, low, high), 2 * rules.runs, mean, rules, between)
    if lower:
        message = f"no point at or above batch size {batch_size}; the largest is {kept[-1].batch_size}"
        return RcpVerdict(verdict=MISSING, message=message, factor=1.0, submission_mean=mean)
    smallest = kept[0]
    compared = _compared(
        smallest,
        smallest.count - 2 * rules.drop,
        mean,
        rules,
        f"no point at batch size {batch_size}, slower than the smallest one ({smallest.batch_size})",
    )
    if compared.verdict == PASS:
        return compared
    message = f"no point at batch size {batch_size}, and faster than the smallest one ({smallest.batch_size})"
    return RcpVerdict(
        verdict=MISSING,
        message=message,
        factor=1.0,
        mean=compared.mean,
        bound=compared.bound,
        submission_mean=mean,
    )


def _compared(point: Point, n_reference: int, mean: float, rules: BenchmarkRules, source: str) -> RcpVerdict:
    """N - 2 submission values whatever is dropped, as the official checker counts them."""
    bound = smallest_acceptable_mean(point.mean, point.deviation, n_reference, rules.runs - 2)
    passed = mean >= bound
    relation = "at or above" if passed else "below"
    message = (
        f"mean of {mean:.2f} {rules.unit.value}s is {relation} the lowest acceptable {bound:.2f} "
        f"(reference {point.mean:.2f}; {source})"
    )
    return RcpVerdict(
        verdict=PASS if passed else FAIL,
        message=message,
        factor=max(1.0, point.mean / mean) if passed and mean > 0 else 1.0,
        mean=point.mean,
        bound=bound,
        submission_mean=mean,
    )
