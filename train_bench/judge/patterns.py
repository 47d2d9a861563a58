"""Copies of a run by what a shift, a stretch and jitter of milliseconds leave: the pattern of its intervals, and its
qualities up to a linear map. Bounds: decision 0177."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from train_bench.core.finite_number import finite_number
from train_bench.logs.record import RunRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

FEWEST_INTERVALS = 7
"""Intervals between evaluations after equal work, below which patterns may agree by chance."""

SAME_PATTERN = 0.1
"""Distance of the patterns of two runs, as a share of their own deviations, below which one is a copy. The nearest of
15,665 pairs of published and own runs are at 0.154."""

LEAST_DEVIATION = 5.0
"""Median deviation of intervals, in steps of the clock, below which a run is too regular to be known again."""

FEWEST_QUALITIES = 6
"""Evaluations below which qualities may lie on one line with those of another run."""

SAME_QUALITIES = 1e-4
"""Distance of the qualities of two runs from a line, as a share of their median second difference, below which one is a
linear map of the other. The nearest of 3,504 pairs of one entry are at 2.9e-3."""

GROUP = 3
"""Intervals after equal work that a median is of."""


class _Pattern(NamedTuple):
    """Deviations (ms) of the intervals between evaluations from the mean of those after equal work, their median
    distance (ms) from the median, the step of the clock (ms), and which intervals these are."""

    deviations: Numbers
    spread: float
    step: float
    which: bytes


def time_copies(records: Sequence[RunRecord]) -> dict[int, int]:
    """Position of a run -> that of an earlier one with its pattern of intervals. None for runs that are too regular or
    have too few evaluations to tell, and none among runs of different numbers of evaluations."""
    if sum(len(record.evaluations) > FEWEST_INTERVALS for record in records) < 2:
        return {}
    groups: dict[tuple[str | None, bytes], list[tuple[int, _Pattern]]] = {}
    for at, record in enumerate(records):
        if (pattern := _pattern(record)) is not None:
            groups.setdefault((record.benchmark, pattern.which), []).append((at, pattern))
    copies: dict[int, int] = {}
    for group in groups.values():
        numbers, patterns = [at for at, _ in group], [pattern for _, pattern in group]
        for later in range(1, len(group)):
            near = _distances(patterns[:later], patterns[later]) < SAME_PATTERN
            if near.any():
                copies[numbers[later]] = numbers[int(near.argmax())]
    return copies


def _pattern(record: RunRecord) -> _Pattern | None:
    import numpy as np

    times = np.array([one.time_ms for one in record.evaluations], float)
    positions = [one.position for one in record.evaluations]
    if len(times) <= FEWEST_INTERVALS or any(position is None for position in positions):
        return None
    intervals, work = np.diff(times), np.round(np.diff(np.array(positions, float)), 6)
    deviations, around = np.zeros(len(intervals)), np.zeros(len(intervals))
    known = np.zeros(len(intervals), dtype=bool)
    for amount in np.unique(work):
        equal = work == amount
        if equal.sum() >= GROUP:
            known |= equal
            deviations[equal] = intervals[equal] - intervals[equal].mean()
            around[equal] = np.abs(intervals[equal] - np.median(intervals[equal]))
    if known.sum() < FEWEST_INTERVALS or (intervals <= 0).any():
        return None
    step = float(math.gcd(*map(int, intervals)))
    return _Pattern(deviations[known], float(np.median(around[known])), step, known.tobytes())


def _distances(earlier: Sequence[_Pattern], run: _Pattern) -> Numbers:
    """Distance of a run from each earlier one, times the factor that brings it nearest: root of the mean square, as a
    share of the smaller spread; infinity where one is too regular."""
    import numpy as np

    table = np.array([one.deviations for one in earlier])
    spreads = np.array([one.spread for one in earlier])
    steps = np.array([max(one.step, run.step) for one in earlier])
    with np.errstate(all="ignore"):
        factors = table @ run.deviations / (table**2).sum(axis=1)
        rest = run.deviations - factors[:, None] * table
        own = np.minimum(factors * spreads, run.spread)
        distances: Numbers = np.sqrt((rest**2).mean(axis=1)) / own
    distances[~(own >= LEAST_DEVIATION * steps) | ~np.isfinite(distances)] = np.inf
    return distances


def same_qualities(one: RunRecord, other: RunRecord) -> bool:
    """True if the qualities of a run are those of another times a positive factor, plus a number."""
    left, right = _qualities(one), _qualities(other)
    if left is None or right is None or len(left) != len(right):
        return False
    import numpy as np

    with np.errstate(all="ignore"):
        centred, line = left - left.mean(), right - right.mean()
        slope = (centred @ line) / (centred @ centred)
        rough = min(slope * _roughness(left), _roughness(right))
        rest = float(np.sqrt(((line - slope * centred) ** 2).mean()))
    return bool(rough > 0 and rest < SAME_QUALITIES * rough)


def _qualities(record: RunRecord) -> Numbers | None:
    values = [finite_number(one.value) for one in record.evaluations]
    if len(set(values)) < FEWEST_QUALITIES or None in values:
        return None
    import numpy as np

    return np.array(values, float)


def _roughness(values: Numbers) -> float:
    import numpy as np

    return float(np.median(np.abs(np.diff(values, 2))))
