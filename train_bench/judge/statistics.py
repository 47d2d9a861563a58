"""The arithmetic of results: means, intervals, and the bound of the convergence test."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

ALPHA = 0.05


def olympic_mean(values: Sequence[float], drop: int) -> float:
    """Mean of what is left after the `drop` lowest and highest are taken away (rules, "Benchmark
    results"). Infinite values stand for runs that failed. Raises `ValueError` if nothing is left."""
    kept = sorted(values)[drop : len(values) - drop]
    if not kept:
        raise ValueError(f"{len(values)} values are too few to drop {drop} at each end")
    return math.inf if math.isinf(kept[-1]) else statistics.fmean(kept)


def confidence_interval(values: Sequence[float], level: float = 1 - ALPHA) -> tuple[float, float]:
    """Student's interval for the mean of all `values` (n - 1 degrees of freedom).

    All values, not the trimmed ones: the deviation of what is left after the extremes are dropped would
    make the interval too narrow. Needs two values.
    """
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    half = student_quantile(len(values) - 1, (1 + level) / 2) * deviation / math.sqrt(len(values))
    return mean - half, mean + half


def smallest_acceptable_mean(mean: float, deviation: float, n_reference: int, n_submission: int) -> float:
    """The lowest mean of a submission that a one-sided pooled t-test at 5 % does not call faster than
    the reference (facts of the RCP checker): mean - t s sqrt(1/n1 + 1/n2), both deviations `deviation`.

    `n_reference` and `n_submission` are the counts after dropping.
    """
    return mean - _insignificant_difference(deviation, n_reference, n_submission)


def largest_acceptable_mean(mean: float, deviation: float, n_reference: int, n_submission: int) -> float:
    """The highest mean that the same test does not call slower: the mirror image of `smallest_acceptable_mean`."""
    return mean + _insignificant_difference(deviation, n_reference, n_submission)


def _insignificant_difference(deviation: float, n_reference: int, n_submission: int) -> float:
    freedom = n_reference + n_submission - 2
    if deviation == 0 or freedom < 1:
        return 0.0
    return student_quantile(freedom, 1 - ALPHA) * deviation * math.sqrt(1 / n_reference + 1 / n_submission)


def weighted_geometric_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """exp(sum(w ln v) / sum(w)) of positive values: the method of custom summaries (rules, "Benchmark
    results")."""
    logs = [weight * math.log(value) for value, weight in zip(values, weights, strict=True)]
    return math.exp(math.fsum(logs) / math.fsum(weights))


def student_quantile(freedom: float, probability: float) -> float:
    """Quantile of Student's distribution. scipy.special, because importing scipy.stats takes a second."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def student_probability(freedom: float, value: float) -> float:
    """Probability that a variable of Student's distribution is at most `value`."""
    from scipy.special import stdtr

    return float(stdtr(freedom, value))
