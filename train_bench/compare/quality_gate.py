"""Quality gate: is an entry worse than another by more than a margin at the same amount of training? By two one-sided
tests.

Times to a target do not say it: an entry whose target lies early may be worse later, and runs of a fixed amount of
training have no time to a target at all. The qualities are those of the last evaluation that all runs of both sides
have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from train_bench.compare.comparison import LEAST_RUNS, more_runs, refuse_other_tasks
from train_bench.compare.gate import CANNOT_TELL
from train_bench.compare.independence import without_copies
from train_bench.core.finite_number import finite_number
from train_bench.judge.entry import Judgement
from train_bench.judge.statistics import (
    ALPHA,
    student_quantile,
    variances_of_difference,
    welch_error,
)
from train_bench.logs.record import RunRecord
from train_bench.quality import Threshold
from train_bench.rules import ruleset

WORSE, NOT_WORSE = "worse", "not_worse"

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
    low, high  one-sided confidence bounds of the loss, of 95 % each; None with too few runs or without any spread
    without    runs of a and of b without a quality there: they died or diverged. If b has more, it is not passed
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
    means: tuple[float, float] | None = None
    loss: float | None = None
    low: float | None = None
    high: float | None = None
    more_runs: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self)


def against_one(
    name_a: str, a: Judgement, name_b: str, b: Judgement, margin: float, *, others: int = 1
) -> list[QualityGate]:
    """Gates between two entries, one of `others` that are tested together: one for each metric of the target, and
    `worse` in one is an error of all. Raises `RequestError` if their tasks differ."""
    refuse_other_tasks(name_a, a.score, name_b, b.score)
    thresholds = ruleset.load(a.score.ruleset).benchmark(a.score.benchmark).target.thresholds
    tested = others * len(thresholds)
    return [_by_metric(name_a, a, name_b, b, margin, threshold, tested) for threshold in thresholds]


def _by_metric(
    name_a: str, a: Judgement, name_b: str, b: Judgement, margin: float, threshold: Threshold, others: int
) -> QualityGate:
    curves = [[_curve(record, threshold.metric) for record in _originals(side)] for side in (a, b)]
    whole = [[curve for curve in of_side if curve] for of_side in curves]
    common = (
        set.intersection(*(set(curve) for of_side in whole for curve in of_side)) if all(whole) else set()
    )
    position = max(common, default=None)
    without = tuple(len(of_side) - len(kept) for of_side, kept in zip(curves, whole, strict=True))
    values = [[curve[position] for curve in kept] if position is not None else [] for kept in whole]
    gate = QualityGate(
        benchmark=b.score.benchmark,
        a=name_a,
        b=name_b,
        verdict=CANNOT_TELL,
        metric=threshold.metric,
        margin=margin,
        position=position,
        unit=str(b.score.unit),
        runs=(len(values[0]), len(values[1])),
        without=(without[0], without[1]),
    )
    return _tested(gate, *values, threshold=threshold, others=others)


def _tested(
    gate: QualityGate, a: Sequence[float], b: Sequence[float], *, threshold: Threshold, others: int
) -> QualityGate:
    if min(len(a), len(b)) < LEAST_RUNS:
        return gate
    sign = 1 if threshold.higher_is_better else -1
    loss = sign * (statistics.fmean(a) - statistics.fmean(b))
    gate = replace(gate, means=(statistics.fmean(a), statistics.fmean(b)), loss=loss)
    error, freedom = welch_error(*variances_of_difference(a, b, paired=False))
    if error == 0:
        return gate
    low = loss - student_quantile(freedom, 1 - ALPHA / others) * error
    high = loss + student_quantile(freedom, 1 - ALPHA) * error
    verdict = WORSE if low > gate.margin else NOT_WORSE if high < gate.margin else CANNOT_TELL
    if verdict == NOT_WORSE and gate.without[1] > gate.without[0]:
        verdict = CANNOT_TELL
    shifted = [sign * value - gate.margin for value in a]
    more = 0 if verdict != CANNOT_TELL else more_runs(shifted, [sign * value for value in b], paired=False)
    return replace(gate, verdict=verdict, low=low, high=high, more_runs=more)


def _originals(side: Judgement) -> list[RunRecord]:
    """Records of the runs of a side without copies of one another."""
    kept = {run.index for run in without_copies([run for run in side.score.runs if run.counted])}
    return [record for record in side.records if record.index in kept]


def _curve(record: RunRecord, metric: str) -> dict[float, float]:
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
