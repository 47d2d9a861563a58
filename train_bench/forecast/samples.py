"""Samples to the target of the reference at a batch size, as a distribution over seeds.

A point holds the evaluations at which its runs reached the target; each reached it at some position since the previous
evaluation. So values are moved back by half of the point's own period, spread over one period when they are drawn, and
only then rounded up to the next evaluation of the requested schedule. A mean that is rounded up to an evaluation is
biased by as much as 11 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from train_bench.errors import RequestError
from train_bench.forecast import law
from train_bench.judge.rcp import FAILED, Point
from train_bench.progress import EvalSchedule
from train_bench.rules.ruleset import BenchmarkRules

POINT, BETWEEN, LAW, BELOW = "point", "between", "law", "below"

# Deviation of ln(truth / interpolation) half-way between two points; published entries of bert and resnet: 5 to 8 %.
_INTERPOLATION = 0.05

# Values of a point that are so many times its median are left out: one of gpt3 has a digit too many, and FAILED.
_MISPRINT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Distribution of single runs of the reference at a batch size.

    values       where runs reach the target, as the log counts (DLRM from epoch 1), not on any evaluation: each is the
                 middle of the `resolution` within which it is not known
    schedule     when quality is evaluated
    source       `point` at this batch size; `between` two; `law`, above the largest; or `below` the smallest
    sizes        batch sizes of the points that were used
    extrapolated whether the batch size is beyond the points, on either side
    message      all this as a sentence
    log_error    standard deviation of the logarithm of the mean: a point has few runs, and a law is not exact
    """

    values: NDArray[np.float64]
    resolution: float
    schedule: EvalSchedule
    source: str
    sizes: tuple[int, ...]
    extrapolated: bool
    message: str
    log_error: float

    def mean(self) -> float:
        """Expected training to the target, before rounding to an evaluation."""
        return float(self.values.mean())

    def draw(self, rng: np.random.Generator, simulations: int, runs: int) -> NDArray[np.float64]:
        """The evaluations, by position, that end `runs` runs in each of `simulations`. Values are drawn with
        replacement; all runs of a simulation share the error of the mean. Infinite beyond the schedule's end."""
        size = (simulations, runs)
        drawn = self.values[rng.integers(len(self.values), size=size)]
        drawn += (rng.random(size) - 0.5) * self.resolution
        drawn -= self.schedule.start
        drawn *= np.exp(self.log_error * rng.standard_normal((simulations, 1)))
        drawn += self.schedule.start
        return next_evaluation(self.schedule, drawn)


def next_evaluation(schedule: EvalSchedule, positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """First evaluation at or after each position; infinite beyond the last."""
    index = np.ceil((positions - schedule.first) / schedule.period - 1e-9)
    at = schedule.first + np.maximum(index, 0.0) * schedule.period
    if math.isfinite(schedule.until):
        at[at > schedule.until + 1e-9 * schedule.period] = np.inf
    return at


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtPoint:
    """A point without its evaluations: sorted values, and their evaluation period."""

    batch_size: int
    values: NDArray[np.float64]
    resolution: float
    left_out: int = field(default=0)

    def log_error(self, start: float) -> float:
        """Standard error of the mean, with the spread over one period, relative to the mean."""
        deviation = math.sqrt(self.values.var() + self.resolution**2 / 12)
        return deviation / math.sqrt(len(self.values)) / float(self.values.mean() - start)


def expect(points: Sequence[Point], rules: BenchmarkRules, batch_size: int) -> Samples:
    """Distribution at a batch size, by the reference convergence points of a benchmark. Raises `RequestError` if the
    points do not give one."""
    usable = sorted((point for point in points if point.values), key=lambda point: point.batch_size)
    if batch_size < 1:
        raise RequestError(f"The batch size is {batch_size}; give a whole number of at least 1.")
    if not usable:
        raise RequestError(
            f"{rules.name} of {rules.ruleset} has no reference convergence points, so its samples to the "
            "target are unknown; make some with train-bench rcp benchmark=NAME."
        )
    rule = rules.schedule_at(batch_size)
    start = rule.start if rule else 0.0
    largest = usable[-1].batch_size
    if batch_size > largest:
        samples = _by_law(usable, rules, batch_size, start)
    else:
        samples = _from_points(usable, rules, batch_size, start)
    schedule = (
        rule.default()
        if rule
        else EvalSchedule(first=samples.resolution, period=samples.resolution, until=math.inf)
    )
    return replace(samples, schedule=schedule)


def _from_points(usable: Sequence[Point], rules: BenchmarkRules, batch_size: int, start: float) -> Samples:
    """Samples at a point, between two, or below all."""
    sizes = sorted({point.batch_size for point in usable})
    higher = min(size for size in sizes if size >= batch_size)
    lower = max((size for size in sizes if size <= batch_size), default=higher)
    low, high = _at(usable, rules, lower), _at(usable, rules, higher)
    if lower == higher == batch_size:
        return _samples(low, start, POINT, f"the reference convergence point at batch size {batch_size}")
    if lower == higher:
        message = (
            f"extrapolated: batch size {batch_size} is below the smallest point, {higher}, whose runs are "
            "used instead"
        )
        below = _samples(high, start, BELOW, message)
        return replace(below, extrapolated=True, log_error=math.hypot(below.log_error, law.TYPICAL_ERROR))
    share = (batch_size - lower) / (higher - lower)
    middle = _between(low, high, share)
    message = f"interpolated between the reference convergence points at batch sizes {lower} and {higher}"
    of_points = math.hypot((1 - share) * low.log_error(start), share * high.log_error(start))
    error = math.hypot(of_points, _INTERPOLATION * 2 * math.sqrt(share * (1 - share)))
    return replace(_samples(middle, start, BETWEEN, message), sizes=(lower, higher), log_error=error)


def _by_law(usable: Sequence[Point], rules: BenchmarkRules, batch_size: int, start: float) -> Samples:
    """Runs of the largest point, scaled to the mean that the law of all points gives for a batch size."""
    largest = usable[-1].batch_size
    try:
        fitted = law.of(usable, rules)
    except RequestError as error:
        raise RequestError(
            f"Batch size {batch_size} is above the only reference convergence point of {rules.name}, "
            f"{largest}, and one point cannot be extrapolated; give a batch size of at most {largest}, or "
            "make points at other batch sizes with train-bench rcp."
        ) from error
    at = _at(usable, rules, largest)
    factor = (fitted.at(batch_size) - at.resolution / 2) / float(at.values.mean() - start)
    moved = replace(at, values=start + (at.values - start) * factor)
    message = (
        f"extrapolated: batch size {batch_size} is above the largest point, {largest}; by the law "
        f"{fitted} {rules.unit.value}s"
    )
    sizes = tuple(sorted({point.batch_size for point in usable}))
    samples = _samples(moved, start, LAW, message)
    return replace(samples, sizes=sizes, extrapolated=True, log_error=fitted.log_error(batch_size))


def _samples(at: _AtPoint, start: float, source: str, message: str) -> Samples:
    without = f", without {at.left_out} misprinted or failed" if at.left_out else ""
    return Samples(
        values=at.values,
        resolution=at.resolution,
        schedule=EvalSchedule(first=at.resolution, period=at.resolution, until=math.inf),
        source=source,
        sizes=(at.batch_size,),
        extrapolated=False,
        message=f"{message} ({len(at.values)} runs{without})",
        log_error=at.log_error(start),
    )


def _at(points: Sequence[Point], rules: BenchmarkRules, batch_size: int) -> _AtPoint:
    """All values of the points at one batch size."""
    of_size = [value for point in points if point.batch_size == batch_size for value in point.values]
    values = np.sort(np.array(of_size, dtype=float))
    kept = values[(values != FAILED) & (values <= _MISPRINT * np.median(values))]
    resolution = _resolution(kept, rules, batch_size, points)
    return _AtPoint(
        batch_size=batch_size,
        values=kept - resolution / 2,
        resolution=resolution,
        left_out=len(values) - len(kept),
    )


def _resolution(
    values: NDArray[np.float64], rules: BenchmarkRules, batch_size: int, points: Sequence[Point]
) -> float:
    """Evaluation period of a point: the smallest distance of two of its values, at most the rules' period. Points are
    often made with a shorter period than the rules require. If all values are equal and the rules have no period, the
    smallest distance to values of other points."""
    rule = rules.schedule_at(batch_size)
    distances = [rule.period] if rule else []
    distances += _distances(values)
    if not distances:
        distances = _distances(np.sort(np.concatenate([point.values for point in points]).astype(float)))
    return min(distances) if distances else float(values[0])


def _distances(ordered: NDArray[np.float64]) -> list[float]:
    gaps = np.diff(ordered)
    return [float(gap) for gap in gaps[gaps > 1e-6 * ordered[-1]]]


def _between(low: _AtPoint, high: _AtPoint, share: float) -> _AtPoint:
    """Interpolation of each quantile, and so of the mean, in the batch size."""
    count = max(len(low.values), len(high.values))
    quantiles = (np.arange(count) + 0.5) / count
    of_low, of_high = (np.quantile(at.values, quantiles, method="hazen") for at in (low, high))
    return _AtPoint(
        batch_size=low.batch_size,
        values=(1 - share) * of_low + share * of_high,
        resolution=(1 - share) * low.resolution + share * high.resolution,
        left_out=low.left_out + high.left_out,
    )
