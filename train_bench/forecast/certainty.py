"""Certainty of a reference convergence point: false alarm rate and power of the RCP test.

A submission is compared with a point by the test of the judge (`rcp.lowest_mean`). The simulation gives the probability
that a submission equal to the reference fails (a false alarm), the probability that one with less training fails (the
power), and the effect of further reference runs. The runs of submissions are those that `samples` expects of the
reference, on the evaluations of the point, and the true mean varies between simulations by the standard error of the
point.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train_bench.errors import RequestError
from train_bench.forecast import law, samples
from train_bench.forecast.samples import Samples
from train_bench.judge import rcp
from train_bench.judge.published import published_entries
from train_bench.judge.published.published_entries import Entry
from train_bench.judge.rcp import Point
from train_bench.progress import EvalSchedule
from train_bench.rules.ruleset import BenchmarkRules

FALSE_ALARM = 0.01
POWER = 0.80
LESS = 0.10
"""Requirements on a point: fail one in a hundred equal submissions, and four in five that need 10 % less."""

MOST_RUNS = 1000
"""Limit of the search for the number of further runs."""

OFF_THE_LAW = 2.0
"""Stated deviations from the law of the other points beyond which a point is an outlier."""

EARLIER = 0.95
ENTRIES = 3
SHARE = 0.8
"""Points are suspicious if at least three published entries of two submitters exist, converge by 5 % or more
earlier in the median, and at most one in five of them does not. Of the points of rounds 1.0 to 4.1 none are."""

_SIMULATIONS = 10_000
_ENDLESS = 10**9
_MOST_LEFT_OUT = 0.9
_ATOMS = 2_000  # runs that represent the distribution of the reference
_SEED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """Certainty of one point.

    standard_error  of the mean, in the benchmark's unit
    bound           the lowest mean of a submission that passes
    used            whether the judge compares with the point, or with the interpolation of its neighbours
    false_alarm     probability that an equal submission fails
    smallest_caught the smallest saved part of training that is detected with a power of 80 %;
                    None above 90 %
    power           probability that a submission that saves `less` of training fails
    endless_false_alarm, endless_caught, endless_power  the same with infinitely many reference runs
    more_for_false_alarm  further reference runs until the false alarm is at most 1 %; None where 1000 are not enough
    more_for_power  further reference runs until `power` is 80 %; None where 1000 are not enough
    """

    batch_size: int
    mean: float
    deviation: float
    count: int
    standard_error: float
    bound: float
    used: bool
    false_alarm: float
    smallest_caught: float | None
    less: float
    power: float
    endless_false_alarm: float
    endless_caught: float | None
    endless_power: float
    more_for_false_alarm: int | None
    more_for_power: int | None

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def certainty_of_point(
    points: Sequence[Point], rules: BenchmarkRules, batch_size: int, less: float = LESS
) -> Certainty:
    """Certainty of the point at a batch size; `less` is the saved part of training whose power is computed."""
    if not 0 < less < 0.9:
        raise RequestError(f"less is {less:g}; give a share of training between 0 and 0.9, such as 0.1.")
    point = next((point for point in points if point.batch_size == batch_size), None)
    if point is None:
        sizes = ", ".join(str(point.batch_size) for point in points) or "none"
        raise RequestError(
            f"{rules.name} of {rules.ruleset} has no point at batch size {batch_size}; it has points at: "
            f"{sizes}."
        )
    if point.count <= 2 * rules.drop:
        raise RequestError(
            f"The point at batch size {batch_size} has {point.count} runs, of which {2 * rules.drop} are dropped; add "
            f"some with train-bench rcp append_point=true."
        )
    trial = _Trial.of(points, point, rules)
    fails, endless = trial.fails(0), trial.fails(None)
    return Certainty(
        batch_size=batch_size,
        mean=point.mean,
        deviation=point.deviation,
        count=point.count,
        standard_error=statistics.stdev(point.values) / math.sqrt(point.count),
        bound=rcp.lowest_mean(point, point.count - 2 * rules.drop, rules),
        used=point in rcp.used(points, rules),
        false_alarm=fails(0.0),
        smallest_caught=_least(fails),
        less=less,
        power=fails(less),
        endless_false_alarm=endless(0.0),
        endless_caught=_least(endless),
        endless_power=endless(less),
        more_for_false_alarm=_fewest(
            lambda more: trial.fails(more)(0.0) <= FALSE_ALARM, endless(0.0) <= FALSE_ALARM
        ),
        more_for_power=_fewest(lambda more: trial.fails(more)(less) >= POWER, endless(less) >= POWER),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """Repeated submissions against a point: the reference's distribution, the factor of its true mean in each
    simulation, and the positions at which the runs of each submission would reach the target without saving any
    training."""

    point: Point
    rules: BenchmarkRules
    of_reference: Samples
    factors: NDArray[np.float64]
    submissions: NDArray[np.float64]

    @classmethod
    def of(cls, points: Sequence[Point], point: Point, rules: BenchmarkRules) -> _Trial:
        """Draw everything random but further reference runs (common random numbers), so that results are comparable."""
        rng = np.random.default_rng(_SEED)
        expected = samples.expect(points, rules, point.batch_size)
        start = expected.schedule.start
        lowest = float(expected.values.min()) + expected.resolution / 2
        before = math.floor((lowest - start) / expected.resolution - 1e-6)
        grid = EvalSchedule(
            first=lowest - before * expected.resolution,
            period=expected.resolution,
            until=math.inf,
            start=start,
        )
        expected = replace(expected, schedule=grid)
        factors = np.exp(expected.log_error * rng.standard_normal((_SIMULATIONS, 1)))
        return cls(
            point=point,
            rules=rules,
            of_reference=expected,
            factors=factors,
            submissions=_needed(expected, rng, (_SIMULATIONS, rules.runs)) * factors,
        )

    def fails(self, more: int | None) -> Callable[[float], float]:
        """Probability of failure as a function of the saved part of training, with so many further reference runs
        (None: infinitely many)."""
        bounds = self._endless_bounds() if more is None else self._bounds(more)
        drop = self.rules.drop

        def probability(less: float) -> float:
            means = _olympic(self._observed(self.submissions * (1 - less)), drop)
            return float((means < bounds - 1e-9 * np.abs(bounds)).mean())

        return probability

    def _bounds(self, more: int) -> NDArray[np.float64]:
        """Lowest mean that passes, in each simulation: further runs differ."""
        drop, of_point = self.rules.drop, np.array(self.point.values, dtype=float)
        if not more:
            return np.array([rcp.lowest_mean(self.point, len(of_point) - 2 * drop, self.rules)])
        rng = np.random.default_rng([_SEED, more])
        further = self._observed(_needed(self.of_reference, rng, (_SIMULATIONS, more)) * self.factors)
        runs = np.concatenate([np.broadcast_to(of_point, (_SIMULATIONS, len(of_point))), further], axis=1)
        return self._lowest(_olympic(runs, drop), runs.std(axis=1), runs.shape[1] - 2 * drop)

    def _endless_bounds(self) -> NDArray[np.float64]:
        """The same with infinitely many runs: mean and deviation of the distribution itself, in each simulation."""
        rng = np.random.default_rng(_SEED + 1)
        factors = np.quantile(self.factors, np.linspace(0, 1, 65))[:, None]
        observed = self._observed(_needed(self.of_reference, rng, (1, _ATOMS)) * factors)
        means, deviations = (
            np.interp(self.factors[:, 0], factors[:, 0], of)
            for of in (observed.mean(axis=1), observed.std(axis=1))
        )
        return self._lowest(means, deviations, _ENDLESS)

    def _lowest(
        self, means: NDArray[np.float64], deviations: NDArray[np.float64], n_reference: int
    ) -> NDArray[np.float64]:
        """RCP test of the judge, which is linear in mean and deviation."""
        at_0, at_1 = (
            rcp.bound_of_test(replace(self.point, mean=0.0, deviation=deviation), n_reference, self.rules)
            for deviation in (0.0, 1.0)
        )
        return means + (at_1 - at_0) * deviations + at_0

    def _observed(self, needed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluations at which runs that need so much training end."""
        schedule = self.of_reference.schedule
        return samples.next_evaluation(schedule, schedule.start + needed)


def _needed(expected: Samples, rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
    """Training that runs of the reference need, before rounding to evaluations and without the error of the mean."""
    places = expected.values[rng.integers(len(expected.values), size=size)]
    return places + (rng.random(size) - 0.5) * expected.resolution - expected.schedule.start


def _olympic(runs: NDArray[np.float64], drop: int) -> NDArray[np.float64]:
    """Olympic mean of each row: without the `drop` lowest and highest."""
    ordered = np.partition(runs, (drop, runs.shape[1] - drop - 1), axis=1)
    means: NDArray[np.float64] = ordered[:, drop : runs.shape[1] - drop].mean(axis=1)
    return means


def _least(fails: Callable[[float], float]) -> float | None:
    """Smallest saved part of training with a power of 80 %, to a thousandth."""
    low, high = 0.0, _MOST_LEFT_OUT
    if fails(high) < POWER:
        return None
    while high - low > 0.0005:
        middle = (low + high) / 2
        low, high = (low, middle) if fails(middle) >= POWER else (middle, high)
    return round(high, 3)


def _fewest(enough: Callable[[int], bool], with_endless: bool) -> int | None:
    """Smallest sufficient number of further runs, by doubling and bisection; None if 1000 are not enough."""
    if enough(0):
        return 0
    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
        if not with_endless or high > MOST_RUNS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """A point compared with the law of the other points of its benchmark.

    ratio      of the point's mean to that of the law
    tolerated  lowest and highest ratio within two deviations, of the law at this batch
               size and of the point's mean
    """

    batch_size: int
    ratio: float
    tolerated: tuple[float, float]

    @property
    def off(self) -> bool:
        """True if the point is an outlier from the law."""
        return not self.tolerated[0] <= self.ratio <= self.tolerated[1]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"off": self.off}


def against_the_law(points: Sequence[Point], rules: BenchmarkRules) -> tuple[Against, ...]:
    """Each point compared with the law of the others; empty if the others have fewer than two batch sizes."""
    compared = []
    for point in points:
        others = [other for other in points if other.batch_size != point.batch_size]
        if len({other.batch_size for other in others}) < 2:
            return ()
        fitted = law.of(others, rules)
        expected = samples.expect(points, rules, point.batch_size)
        error = OFF_THE_LAW * math.hypot(fitted.log_error(point.batch_size), expected.log_error)
        ratio = (point.mean - expected.schedule.start) / fitted.at(point.batch_size)
        compared.append(
            Against(batch_size=point.batch_size, ratio=ratio, tolerated=(math.exp(-error), math.exp(error)))
        )
    return tuple(compared)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedComparison:
    """Published entries of a round compared with its points, each by the ratio of its samples to the expectation at its
    batch size: lowest, median and highest ratio, the number of entries and submitters, and the number of entries that
    converge earlier than the points."""

    lowest: float
    median: float
    highest: float
    entries: int
    submitters: int
    earlier: int

    @property
    def suspicious(self) -> bool:
        """True if the points are suspicious: entries converge earlier, by more than the usual error of points."""
        enough = self.entries >= ENTRIES and self.submitters >= 2
        return enough and self.median <= EARLIER and self.earlier >= SHARE * self.entries

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"suspicious": self.suspicious}


def compare_with_published(
    points: Sequence[Point], rules: BenchmarkRules, entries: Iterable[Entry]
) -> PublishedComparison | None:
    """Closed entries of the points' benchmark and round, at and between their batch sizes; None without any."""
    unit = published_entries.samples_per_unit(rules)
    if unit is None or not points:
        return None
    number = "v" + rules.ruleset.rpartition("-")[2].removesuffix(".0")
    sizes = [point.batch_size for point in points]
    ratios, submitters = [], set()
    for entry in entries:
        of_round = (entry.round, entry.benchmark) == (number, rules.name) and entry.division in (
            None,
            "closed",
        )
        size, needed = entry.global_batch, entry.samples_to_target
        if not of_round or size is None or needed is None or not min(sizes) <= size <= max(sizes):
            continue
        expected = samples.expect(points, rules, size)
        observed = expected.mean() + expected.resolution / 2 - expected.schedule.start
        ratios.append(needed / (observed * unit))
        submitters.add(entry.submitter)
    if not ratios:
        return None
    return PublishedComparison(
        lowest=min(ratios),
        median=statistics.median(ratios),
        highest=max(ratios),
        entries=len(ratios),
        submitters=len(submitters),
        earlier=sum(ratio < 1 for ratio in ratios),
    )


def describe(
    points: Sequence[Point],
    rules: BenchmarkRules,
    entries: Iterable[Entry],
    *,
    less: float = LESS,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Plain data of all this for a benchmark's points, or for that at one batch size."""
    if not points:
        raise RequestError(
            f"{rules.name} of {rules.ruleset} has no reference convergence points; make some with train-bench rcp "
            f"benchmark=NAME."
        )
    sizes = sorted({point.batch_size for point in points}) if batch_size is None else [batch_size]
    published = compare_with_published(points, rules, entries)
    return {
        "benchmark": rules.name,
        "ruleset": rules.ruleset,
        "unit": rules.unit.value,
        "runs": rules.runs,
        "drop": rules.drop,
        "digest": rcp.digest(points),
        "points": [certainty_of_point(points, rules, size, less).as_json() for size in sizes],
        "law": law.of(points, rules).as_json() if len({point.batch_size for point in points}) > 1 else None,
        "against_the_law": [one.as_json() for one in against_the_law(points, rules)],
        "published": published.as_json() if published else None,
    }
