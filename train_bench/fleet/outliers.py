"""Which of a few times is too long, where one or another may be ill and all have some noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_DEVIATIONS = 3.5

FALSE_ALARM = 0.01
"""How often a fleet of any size, all of it good, may have a node named, as far as its noise is normal and known."""

OF_A_NORMAL = 1.4826
"""Standard deviation over the median absolute deviation, of a normal distribution."""

RANGES = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534}
"""Expected range of so many values over their standard deviation, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What is usual: the `centre` of the times, their `noise` (standard deviation of their logarithms), and how many
    times the centre is too long (`bound`)."""

    centre: float
    noise: float
    bound: float


def scale_of(times: Mapping[str, Sequence[float]], *, floor: float, ill: int = 1) -> Scale:
    """The scale of what took these times, each at least once. `floor` is the least noise that is believed; as many as
    `ill` may be ill however few there are.

    Of several times of one, the shortest counts: others disturb in one direction only. Centre and deviation are
    medians, the lower where there are two, so that of two the slower one can be seen. What few values tell of
    the noise is little: how much repetitions on one and the same differ is held against it.
    """
    best = sorted(math.log(min(values)) for values in times.values())
    middle = max(0, min((len(best) - 1) // 2, len(best) - 1 - ill))
    centre = best[middle]
    between = OF_A_NORMAL * sorted(abs(value - centre) for value in best)[middle]
    within = sorted(map(_deviation, times.values()))[(len(times) - 1) // 2]
    noise = max(floor, between, within)
    return Scale(centre=math.exp(centre), noise=noise, bound=math.exp(deviations(len(best)) * noise))


def deviations(count: int) -> float:
    """How many standard deviations one of so many has to be away."""
    return max(LEAST_DEVIATIONS, statistics.NormalDist().inv_cdf(1 - FALSE_ALARM / max(count, 1)))


def _deviation(values: Sequence[float]) -> float:
    """Of the logarithms of some times, by their range."""
    if len(values) < 2:
        return 0.0
    span = math.log(max(values)) - math.log(min(values))
    return span / RANGES.get(len(values), max(RANGES.values()))
