"""Equivalence test of convergence: samples to the target of two implementations, two one-sided tests (TOST).

With few runs a difference that is not significant shows nothing. Equal convergence has to be shown: the 90 % confidence
interval of the ratio of samples lies within the margin. If it lies outside, they differ, whether slower or faster. Runs
that all stop at the same evaluation show no variance, so they do not show equality either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from train_bench.compare import comparison
from train_bench.compare.independence import only_seed
from train_bench.errors import RequestError
from train_bench.judge.score import Score
from train_bench.judge.statistics import (
    MOST_RUNS,
    student_quantile,
    variances_of_difference,
    welch_error,
)

MARGIN = 0.05
LEVEL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualConvergence:
    """Samples to the target of B over those of A.

    verdict    "equal", "different" or "cannot tell"
    low, high  ends of the 90 % confidence interval of the ratio
    runs       of A and of B that reached the target
    more_runs  of each that decide at the observed difference; None above the limit, or without variance
    """

    verdict: str
    ratio: float
    low: float
    high: float
    runs: tuple[int, int]
    more_runs: int | None


def equal_convergence(name_a: str, a: Score, name_b: str, b: Score) -> EqualConvergence:
    """Test two entries. Raises `RequestError` for different tasks and for fewer than three runs that count."""
    comparison.refuse_other_tasks(name_a, a, name_b, b)
    runs_a, runs_b, paired = comparison.comparable(a, b, name_a, name_b)
    sides = []
    for name, runs in ((name_a, runs_a), (name_b, runs_b)):
        seed = only_seed(runs)
        if seed is not None:
            raise RequestError(
                f"All runs of {name} have seed {seed}; their convergence is that of one run. Run more seeds."
            )
        logs = comparison.logs_of(runs, "samples")
        if logs is None or len(logs) < comparison.LEAST_RUNS:
            raise RequestError(
                f"{name} has fewer than {comparison.LEAST_RUNS} runs with samples to the target; run more seeds."
            )
        sides.append(logs)
    floors = comparison.floors_of(runs_a, runs_b, paired=paired)
    return two_one_sided(*sides, paired=paired, floors=floors)


def two_one_sided(
    one: Sequence[float], other: Sequence[float], *, paired: bool, floors: Sequence[float] = ()
) -> EqualConvergence:
    """Test the logarithms of samples, whose variances are at least the `floors` of the evaluation period."""
    apart = math.fsum(other) / len(other) - math.fsum(one) / len(one)
    spread, sizes = variances_of_difference(one, other, paired=paired, floors=floors)
    error, freedom = welch_error(spread, sizes)
    reach = error * student_quantile(freedom, 1 - LEVEL) if error else 0.0
    limit = math.log1p(MARGIN)
    verdict = "different" if error and abs(apart) - reach > limit else "cannot tell"
    if abs(apart) + reach < limit and max(len(set(one)), len(set(other))) > 1:
        verdict = "equal"
    return EqualConvergence(
        verdict=verdict,
        ratio=math.exp(apart),
        low=math.exp(apart - reach),
        high=math.exp(apart + reach),
        runs=(len(one), len(other)),
        more_runs=_more(error, apart, limit, min(sizes)) if verdict == "cannot tell" else 0,
    )


def _more(error: float, apart: float, limit: float, runs: int) -> int | None:
    """Further runs of each until the interval lies on one side of the nearer margin."""
    room = abs(limit - abs(apart)) if error else 0.0
    for more in range(1, MOST_RUNS + 1):
        reach = error * math.sqrt(runs / (runs + more)) * student_quantile(2 * (runs + more) - 2, 1 - LEVEL)
        if reach < room:
            return more
    return None
