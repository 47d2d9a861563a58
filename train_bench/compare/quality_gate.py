"""Quality gate: is an entry worse than another by more than a margin at the same amount of training? By two one-sided
tests.

Times to a target do not say it: an entry whose target lies early may be worse later, and runs of a fixed amount of
training have no time to a target at all. The qualities are those of the last evaluation that all runs of both sides
have. A run without a quality is not left out: it is worse than all others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from train_bench.compare.alpha_spending import nominal_levels
from train_bench.compare.censored import rank_test
from train_bench.compare.comparison import LEAST_RUNS, more_runs, refuse_other_tasks
from train_bench.compare.gate import CANNOT_TELL, SHARE, refuse_few_pairs
from train_bench.compare.independence import without_copies
from train_bench.core.finite_number import finite_number
from train_bench.judge.entry import Judgement
from train_bench.judge.statistics import (
    ALPHA,
    student_quantile,
    variances_of_difference,
    welch_error,
)
from train_bench.logs.record import DIED, RunRecord
from train_bench.quality import Threshold
from train_bench.rules import ruleset

Curve = dict[float, float]
"""Qualities of a run by position; empty for a run without."""

WORSE, NOT_WORSE = "worse", "not_worse"
BETTER, NOT_BETTER = "better", "not_better"
"""Words of gates on a loss, and on a gain."""

EXIT_CODES = {NOT_WORSE: 0, WORSE: 1, CANNOT_TELL: 3}
"""Exit codes of `compare --fail-if-worse`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityGate:
    """Quality gate of `b` against `a`.

    verdict    `worse`, `not_worse` or `cannot_tell`
    margin     largest allowed loss of quality, in the metric's unit
    position   amount of training at which qualities are compared, in the benchmark's unit; None without a common one
    means      of a and of b there
    loss       mean of a minus that of b where a higher metric is better, else the other way; above 0 b is worse
    levels     one-sided levels of `worse` and of `not_worse`
    low, high  confidence bounds of the loss at these; None with too few runs or without any spread
    without    runs of a and of b without a quality there: they died, diverged or broke a rule. They are the worst of
               all: where there are any, a rank test says `worse`, and b, to be `not_worse`, may not have more
    ranks      p-value of that test, of the hypothesis that b is worse by no more than the margin
    most_pairs  largest number of pairs; None if the gate looks once
    more_runs  further runs of each that would decide it at this loss; None if they are more than 200
    """

    benchmark: str
    a: str
    b: str
    verdict: str
    metric: str
    margin: float
    position: float | None
    unit: str
    runs: tuple[int, int]
    without: tuple[int, int]
    levels: tuple[float, float]
    means: tuple[float, float] | None = None
    loss: float | None = None
    low: float | None = None
    high: float | None = None
    ranks: float | None = None
    most_pairs: int | None = None
    more_runs: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self)


def against_one(
    name_a: str,
    a: Judgement,
    name_b: str,
    b: Judgement,
    margin: float,
    *,
    others: int = 1,
    most_pairs: int | None = None,
) -> list[QualityGate]:
    """Gates between two entries, one of `others` that are tested together: one for each metric of the target, and
    `worse` in one is an error of all. With `most_pairs` each tests after each pair of runs, in the order in which they
    were made, until it decides. Raises `RequestError` if their tasks differ."""
    refuse_other_tasks(name_a, a.score, name_b, b.score)
    refuse_few_pairs(most_pairs)
    thresholds = ruleset.load(a.score.ruleset).benchmark(a.score.benchmark).target.thresholds
    tested = others * len(thresholds)
    found = []
    for threshold in thresholds:
        curves = [_curves(side, threshold.metric, growing=most_pairs is not None) for side in (a, b)]
        for sizes, levels in _looks(tuple(map(len, curves)), tested, most_pairs):
            of_a, of_b = (of_side[:size] for of_side, size in zip(curves, sizes, strict=True))
            gate = QualityGate(
                benchmark=b.score.benchmark,
                a=name_a,
                b=name_b,
                verdict=CANNOT_TELL,
                metric=threshold.metric,
                margin=margin,
                position=None,
                unit=str(b.score.unit),
                runs=(0, 0),
                without=(0, 0),
                levels=levels,
                most_pairs=most_pairs,
            )
            gate = _tested(gate, of_a, of_b, threshold)
            if gate.verdict != CANNOT_TELL:
                break
        found.append(gate)
    return found


def _looks(
    there: tuple[int, ...], tested: int, most_pairs: int | None
) -> list[tuple[tuple[int, ...], tuple[float, float]]]:
    """Numbers of runs of each look, and its levels for `worse` and `not_worse`; at least one look."""
    if most_pairs is None:
        return [(there, (ALPHA / tested, ALPHA))]
    levels = zip(
        nominal_levels(SHARE * ALPHA / tested, most_pairs),
        nominal_levels(SHARE * ALPHA, most_pairs),
        strict=True,
    )
    sizes = range(LEAST_RUNS, max(LEAST_RUNS, min(*there, most_pairs)) + 1)
    return [((size, size), both) for size, both in zip(sizes, levels, strict=False)]


def _tested(gate: QualityGate, a: Sequence[Curve], b: Sequence[Curve], threshold: Threshold) -> QualityGate:
    """A look at some runs of both sides."""
    known = [set(curve) for curve in (*a, *b) if curve]
    position = max(set.intersection(*known), default=None) if known else None
    sign = 1 if threshold.higher_is_better else -1
    values = [[curve[position] for curve in side if curve] if position is not None else [] for side in (a, b)]
    without = len(a) - len(values[0]), len(b) - len(values[1])
    if position is None:
        without = sum(not curve for curve in a), sum(not curve for curve in b)
    gate = replace(gate, position=position, runs=(len(values[0]), len(values[1])), without=without)
    if min(gate.runs) >= LEAST_RUNS:
        gate = _with_bounds(gate, values[0], values[1], sign)
    worse = gate.low is not None and gate.low > gate.margin
    not_worse = gate.high is not None and gate.high < gate.margin
    if any(without) and position is not None:
        losses = [
            [*(-sign * value for value in of_side), *[math.inf] * lacking]
            for of_side, lacking in zip(values, without, strict=True)
        ]
        ranks = rank_test([loss + gate.margin for loss in losses[0]], losses[1], paired=False)
        gate = replace(gate, ranks=ranks.longer)
        worse = ranks.longer <= gate.levels[0]
        not_worse = not_worse and without[1] * len(a) <= without[0] * len(b)
    verdict = WORSE if worse else NOT_WORSE if not_worse else CANNOT_TELL
    return replace(gate, verdict=verdict, more_runs=gate.more_runs if verdict == CANNOT_TELL else 0)


def _with_bounds(gate: QualityGate, a: Sequence[float], b: Sequence[float], sign: int) -> QualityGate:
    loss = sign * (statistics.fmean(a) - statistics.fmean(b))
    gate = replace(gate, means=(statistics.fmean(a), statistics.fmean(b)), loss=loss)
    error, freedom = welch_error(*variances_of_difference(a, b, paired=False))
    if error == 0:
        return gate
    low = loss - student_quantile(freedom, 1 - gate.levels[0]) * error
    high = loss + student_quantile(freedom, 1 - gate.levels[1]) * error
    more = None
    if gate.most_pairs is None and not low > gate.margin and not high < gate.margin:
        shifted = [sign * value - gate.margin for value in a]
        more = more_runs(shifted, [sign * value for value in b], paired=False)
    return replace(gate, low=low, high=high, more_runs=more)


def _curves(side: Judgement, metric: str, *, growing: bool) -> list[Curve]:
    """Qualities of the runs of a side in their order, without copies of one another; empty for one that died or broke a
    rule. Of a side that grows, the last run may be under way."""
    last = max((run.index for run in side.score.runs), default=0)
    runs = [
        run
        for run in side.score.runs
        if (run.counted or growing) and not (growing and run.index == last and run.status == DIED)
    ]
    records = {record.index: record for record in side.records}
    kept = sorted(without_copies(runs), key=lambda run: run.index)
    return [
        {} if run.status == DIED or not run.compliant else curve_of(records[run.index], metric)
        for run in kept
        if run.index in records
    ]


def only_threshold(judged: Judgement) -> Threshold:
    """Threshold of an entry's benchmark. Raises `RequestError` where there are several."""
    target = ruleset.load(judged.score.ruleset).benchmark(judged.score.benchmark).target
    target.only_metric()
    return target.thresholds[0]


def curve_of(record: RunRecord, metric: str) -> Curve:
    """Qualities by position; empty for a run of which one is no finite number: it diverged, and what it had before says
    nothing."""
    curve = {}
    for evaluated in record.evaluations:
        value = evaluated.value.get(metric) if isinstance(evaluated.value, dict) else evaluated.value
        number = finite_number(value)
        if number is None or not math.isfinite(number):
            return {}
        if evaluated.position is not None:
            curve[evaluated.position] = float(number)
    return curve
