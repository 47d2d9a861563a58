"""Quality at a fixed budget: is the mean quality of a challenger's runs better than that of the frontier's by more than
the gain, at the same amount of training?

Two one-sided t-tests on the differences of pairs of runs, or on their means by session, after each pair or session
from the third on; `better` is wrong with at most the level of the challenge. A run of the challenger without a quality
at the budget is not left out: it is worse than all others, and a signed-rank test that counts it has to agree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from train_bench.compare.alpha_spending import increments, nominal_levels
from train_bench.compare.censored import rank_test
from train_bench.compare.comparison import LEAST_RUNS
from train_bench.compare.gate import CANNOT_TELL, SHARE
from train_bench.compare.independence import without_copies
from train_bench.compare.quality_gate import BETTER, NOT_BETTER, curve_of, only_threshold
from train_bench.judge.entry import Judgement
from train_bench.judge.score import Score
from train_bench.judge.statistics import ALPHA, student_quantile
from train_bench.logs.record import DIED, SUCCESS
from train_bench.referee.contest import Contest

ROUNDING = 1e-12
"""Share of a quality below which differences are those of its arithmetic."""

Pair = tuple[float | None, float | None]
"""Qualities of the frontier and of the challenger; None of a run without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Mean difference after so many pairs (or sessions), above 0 where the challenger is better, and its one-sided
    confidence bounds: a lower one where the look has a share of the level, and an upper one."""

    runs: int
    value: float
    low: float | None
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityGain:
    """Gain in quality of a challenger at the budget.

    verdict   `better` by more than the `gain`, `not_better` or `cannot_tell`
    pairs     qualities of the pairs, of the frontier first
    without   runs of the frontier and of the challenger that have none
    ranks     p-value of the signed-rank test that counts these, at the last look; None where all have one
    """

    verdict: str
    metric: str
    higher_is_better: bool
    budget: float
    unit: str
    gain: float
    pairs: tuple[Pair, ...]
    without: tuple[int, int]
    looks: tuple[Look, ...]
    ranks: float | None

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self)

    @property
    def sides(self) -> list[list[float | None]]:
        """Qualities of the frontier, and of the challenger."""
        return [[pair[side] for pair in self.pairs] for side in (0, 1)]


def at_budget(judged: Judgement, budget: float, metric: str) -> dict[int, float | None]:
    """Quality of each run of a campaign at the budget, by the index of the run, without copies of one another. None of
    one that died, broke a rule, diverged or was not evaluated there."""
    records = {record.index: record for record in judged.records}
    return {
        run.index: curve_of(records[run.index], metric).get(budget)
        if run.compliant and run.status != DIED
        else None
        for run in without_copies(judged.score.runs)
        if run.index in records
    }


def pairs_at_budget(contest: Contest, frontier: Judgement, challenger: Judgement) -> list[Pair]:
    """Qualities of the pairs that are complete, in their order."""
    metric = only_threshold(frontier).metric
    a, b = (at_budget(side, contest.budget or 0.0, metric) for side in (frontier, challenger))
    return [(a[index], b[index]) for index in sorted(a.keys() & b.keys())]


def ended_early(judged: Judgement, budget: float) -> int:
    """Number of runs that reached the target of the benchmark before the budget, and ended there."""
    metric = only_threshold(judged).metric
    reached = {run.index for run in judged.score.runs if run.status == SUCCESS}
    return sum(
        record.index in reached and curve_of(record, metric).get(budget) is None for record in judged.records
    )


def timed(score: Score, qualities: dict[int, float | None]) -> Score:
    """The score with the times of all runs to the budget, for a gate on time; a run without a quality has none."""
    runs = (
        replace(run, converged=qualities.get(run.index) is not None, evaluation_minutes=None)
        for run in score.runs
    )
    return replace(score, runs=tuple(runs))


def quality_gain(contest: Contest, frontier: Judgement, challenger: Judgement, level: float) -> QualityGain:
    """Decide by the runs so far."""
    threshold, pairs = only_threshold(frontier), pairs_at_budget(contest, frontier, challenger)
    sign = 1 if threshold.higher_is_better else -1
    each = 1 if contest.sessions == 1 else contest.pairs // contest.sessions
    observed = [_difference(pairs[at : at + each], sign) for at in range(0, len(pairs) - each + 1, each)]
    most = contest.pairs if contest.sessions == 1 else contest.sessions
    rounding = ROUNDING * max((abs(one) for pair in pairs for one in pair if one is not None), default=0.0)
    verdict, looks, ranks = decide(observed, contest.gain, most, level, rounding)
    return QualityGain(
        verdict=verdict,
        metric=threshold.metric,
        higher_is_better=threshold.higher_is_better,
        budget=contest.budget or 0.0,
        unit=str(frontier.score.unit),
        gain=contest.gain,
        pairs=tuple(pairs),
        without=(sum(a is None for a, _ in pairs), sum(b is None for _, b in pairs)),
        looks=tuple(looks),
        ranks=ranks,
    )


def _difference(pairs: Sequence[Pair], sign: int) -> float:
    """Mean difference of pairs, above 0 where the challenger is better: minus infinity if one of its runs has no
    quality, infinity if none of the frontier has one, NaN if both are without."""
    known = [sign * (b - a) for a, b in pairs if a is not None and b is not None]
    if any(b is None for _, b in pairs):
        return math.nan if all(a is None for a, _ in pairs) else -math.inf
    return statistics.fmean(known) if known else math.inf


def decide(
    observed: Sequence[float], gain: float, most: int, level: float, rounding: float = 0.0
) -> tuple[str, list[Look], float | None]:
    """Verdict, looks until it, and p-value of the signed-rank test at the last one, by differences in their order.
    Those that are equal but for their `rounding` have no spread, and decide nothing."""
    levels = zip(increments(level, most), nominal_levels(SHARE * ALPHA, most), strict=True)
    looks: list[Look] = []
    ranks = None
    sizes = range(LEAST_RUNS, min(len(observed), most) + 1)
    for size, (above, below) in zip(sizes, levels, strict=False):
        first = observed[:size]
        known = [one for one in first if math.isfinite(one)]
        if len(known) < LEAST_RUNS:
            continue
        mean, deviation = statistics.fmean(known), statistics.stdev(known)
        if deviation <= rounding:
            continue
        error = deviation / math.sqrt(len(known))
        low = mean - student_quantile(len(known) - 1, 1 - above) * error if above > 0 else None
        high = mean + student_quantile(len(known) - 1, 1 - below) * error
        looks.append(Look(runs=size, value=mean, low=low, high=high))
        better, not_better = low is not None and low > gain, high < gain
        if len(known) < size:
            counted = [gain if math.isnan(one) else one for one in first]
            ranks = rank_test([gain] * size, counted, paired=True).longer
            better = better and ranks <= above
            not_better = not_better and first.count(math.inf) <= first.count(-math.inf)
        if better or not_better:
            return (BETTER if better else NOT_BETTER), looks, ranks
    return CANNOT_TELL, looks, ranks
