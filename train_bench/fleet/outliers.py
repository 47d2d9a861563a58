"""Outlier test for a few noisy times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_DEVIATIONS = 3.5

FALSE_ALARM = 0.01
"""Family-wise error rate of a fleet of good nodes of any size, as far as its noise is normal and known."""

OF_A_NORMAL = 1.4826
"""Standard deviation over the median absolute deviation, of a normal distribution."""

RANGES = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534}
"""Expected range of so many values over their standard deviation, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Scale of the times: `centre`, `noise` (standard deviation of their logarithms), and `bound`, the multiple of the
    centre above which a time is an outlier. `assumed` is that of the assumed noise alone: a time between the two is
    one that only the noise of these times excuses. `highest` is the bound by the upper confidence limit (80 %) of the
    noise: few repetitions may have been alike by chance."""

    centre: float
    noise: float
    bound: float
    assumed: float
    highest: float


def scale_of(times: Mapping[str, Sequence[float]], *, floor: float, ill: int = 1) -> Scale:
    """Scale of groups of times, at least one per group. `floor` is the least noise that is assumed; up to
    `ill` groups may be outliers however few there are.

    A group of several times counts with its shortest: disturbances only slow down. Centre and deviation are medians,
    the lower of two, so that of two the slower one can be found. A few values estimate the noise poorly, so the spread
    of repetitions is compared with it.
    """
    best = sorted(math.log(min(values)) for values in times.values())
    middle = max(0, min((len(best) - 1) // 2, len(best) - 1 - ill))
    centre = best[middle]
    between = OF_A_NORMAL * sorted(abs(value - centre) for value in best)[middle]
    within = sorted(map(_deviation, times.values()))[(len(times) - 1) // 2]
    noise, times_noise = max(floor, between, within), deviations(len(best))
    free = sum(len(values) - 1 for values in times.values())
    return Scale(
        centre=math.exp(centre),
        noise=noise,
        bound=math.exp(times_noise * noise),
        assumed=math.exp(times_noise * floor),
        highest=math.exp(times_noise * max(noise, within * upper_limit(free))),
    )


def upper_limit(free: int) -> float:
    """Upper confidence limit (80 %) of a standard deviation with so many degrees of freedom, over its estimate."""
    if free < 1:
        return 1.0
    from scipy.special import chdtri

    return math.sqrt(free / float(chdtri(free, 0.8)))


def deviations(count: int) -> float:
    """Bound in standard deviations for one of so many."""
    return max(LEAST_DEVIATIONS, statistics.NormalDist().inv_cdf(1 - FALSE_ALARM / max(count, 1)))


def _deviation(values: Sequence[float]) -> float:
    """Standard deviation of the logarithms of some times, from their range."""
    if len(values) < 2:
        return 0.0
    span = math.log(max(values)) - math.log(min(values))
    return span / RANGES.get(len(values), max(RANGES.values()))
