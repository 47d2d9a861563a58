"""Group-sequential test bounds by alpha spending (Lan and DeMets 1983).

The looks up to information fraction t may spend alpha(t) of the level. The spending function is of the O'Brien-Fleming
type, which leaves nearly all of the level for the last look.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import Any

NORMAL = NormalDist()

POINTS = 801
"""Grid points of the integrated density (Simpson's rule: an odd number)."""

FAR = 8.0
"""Integration limit in standard deviations."""


def spent(level: float, share: float) -> float:
    """Spending function: 2 - 2 Phi(z / sqrt(share)) at information fraction `share` of a one-sided `level`, where z is
    exceeded with half of the level."""
    if share >= 1:
        return level
    return 2 * NORMAL.cdf(NORMAL.inv_cdf(level / 2) / math.sqrt(share))


def increments(level: float, most: int, first: int = 3) -> tuple[float, ...]:
    """Level of each look likewise: what may be spent between it and the one before. They add up to `level`, so that
    exact tests keep it whatever their correlation, at the cost of some power; `nominal_levels` assumes known
    deviations, which few runs at a small level are far from."""
    shares = [spent(level, part / most) for part in range(first, most + 1)]
    return tuple(now - before for now, before in zip(shares, (0.0, *shares), strict=False))


@cache
def nominal_levels(level: float, most: int, first: int = 3) -> tuple[float, ...]:
    """One-sided level of each look after `first`, ..., `most` equal parts of the information, such that a test that
    stops at the first significant look has `level` in all.

    The cumulative sum is a Brownian motion in the information fraction. Its density on the paths that have not stopped
    is carried from look to look, and each bound leaves the probability above it that may be spent there.
    """
    import numpy as np
    from scipy.special import ndtr

    shares = [part / most for part in range(first, most + 1)]
    levels: list[float] = []
    at: Any = np.zeros(1)
    mass: Any = np.ones(1)
    before = 0.0
    for share in shares:
        deviation = math.sqrt(share - before)
        due = spent(level, share) - (spent(level, before) if before else 0.0)

        def above(bound: float, at: Any = at, mass: Any = mass, deviation: float = deviation) -> float:
            return float(mass @ ndtr((at - bound) / deviation))

        bound = _where(above, due)
        levels.append(NORMAL.cdf(-bound / math.sqrt(share)))
        grid = np.linspace(-FAR * math.sqrt(share), bound, POINTS)
        density = np.exp(-0.5 * ((grid[:, None] - at) / deviation) ** 2) @ mass
        density /= deviation * math.sqrt(2 * math.pi)
        at, mass, before = grid, density * _simpson(grid), share
    return tuple(levels)


def _where(above: Any, due: float) -> float:
    """The bound whose upper tail has probability `due`, by bisection."""
    low, high = -FAR, 2 * FAR
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) > due else (low, middle)
    return (low + high) / 2


def _simpson(grid: Any) -> Any:
    import numpy as np

    weights = np.ones(len(grid))
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return weights * (grid[1] - grid[0]) / 3
