"""Quality: metrics of an evaluation, and targets."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from train_bench.errors import RequestError

LARGEST_INT = int(sys.float_info.max)
"""Largest whole number that is compared with a target."""

ROUNDING = 1e-3
"""Tolerance by which the arithmetic of a metric may exceed its best possible value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The metrics of one evaluation by name, for example `{"top1": 0.759}`."""

    metrics: Mapping[str, float]

    @property
    def diverged(self) -> bool:
        """True if any metric is not a finite number."""
        return not all(not _is_too_large(value) and math.isfinite(value) for value in self.metrics.values())

    @property
    def logged(self) -> float | dict[str, float]:
        """The value of an `eval_accuracy` line: a number, or an object where there are several."""
        if len(self.metrics) == 1:
            return next(iter(self.metrics.values()))
        return dict(self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The value that one metric has to reach, or with `strictly` to pass; `higher_is_better` gives the
    direction. `best` is the best value that the metric can have, None where it has none."""

    metric: str
    value: float
    higher_is_better: bool = True
    strictly: bool = False
    best: float | None = None

    def is_impossible(self, seen: float) -> bool:
        """True if `seen` is beyond the best value that the metric can have. NaN or an infinite loss is not."""
        if self.best is None:
            return False
        return seen > self.best + ROUNDING if self.higher_is_better else seen < self.best - ROUNDING

    def reached(self, quality: Quality) -> bool:
        """True if the metric is at the threshold or beyond; a missing, infinite or impossible metric never is."""
        seen = quality.metrics.get(self.metric, math.nan)
        if self.is_impossible(seen) or (isinstance(seen, float) and math.isinf(seen)):
            return False
        if seen == self.value:
            return not self.strictly
        return seen > self.value if self.higher_is_better else seen < self.value

    @property
    def bound(self) -> str:
        """The best value as a part of a sentence."""
        return f"is at {'most' if self.higher_is_better else 'least'} {self.best:g}"

    def __str__(self) -> str:
        sign = (">" if self.higher_is_better else "<") + ("" if self.strictly else "=")
        return f"{self.metric} {sign} {self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """All thresholds that have to be reached in the same evaluation."""

    thresholds: tuple[Threshold, ...]

    def reached(self, quality: Quality) -> bool:
        """True if this evaluation ends the run."""
        return all(threshold.reached(quality) for threshold in self.thresholds)

    def refuse(self, answer: object, call: str) -> str | None:
        """Reason that the `answer` of an evaluation by `call` cannot be compared with this target, as a sentence; None
        if it can."""
        if not isinstance(answer, Quality):
            return f"{call} gave {answer!r}; it has to give a Quality."
        for name, value in answer.metrics.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or _is_too_large(value):
                return f"{call} gave {value!r} as {name}; it has to be a number."
        lacking = [
            threshold.metric for threshold in self.thresholds if threshold.metric not in answer.metrics
        ]
        for threshold in self.thresholds:
            seen = answer.metrics.get(threshold.metric, math.nan)
            if threshold.is_impossible(seen):
                return (
                    f"{call} gave {seen!r} as {threshold.metric}, which {threshold.bound}; give it in the unit of the "
                    f"target ({threshold}), a fraction and no percentage."
                )
        if lacking:
            given = ", ".join(answer.metrics) or "no metric"
            return (
                f"{call} gave {given}, and the target {self} needs {' and '.join(lacking)}; spell the metric alike "
                f"there and in the rules of the round."
            )
        return None

    def only_metric(self) -> str:
        """The name of the metric, where there is one. Raises `RequestError` where there are several."""
        names = [threshold.metric for threshold in self.thresholds]
        if len(names) > 1:
            raise RequestError(f"The target is {self}: name each metric, {names[0]}=VALUE.")
        return names[0]

    def quality_of(self, logged: object) -> Quality:
        """Read the value of an `eval_accuracy` line back; what cannot be read becomes NaN."""
        names = [threshold.metric for threshold in self.thresholds]
        if isinstance(logged, Mapping):
            return Quality(metrics={name: _number(logged.get(name)) for name in names})
        return Quality(metrics={name: _number(logged) for name in names})

    def __str__(self) -> str:
        return " and ".join(str(threshold) for threshold in self.thresholds)


def _is_too_large(value: float) -> bool:
    return isinstance(value, int) and abs(value) > LARGEST_INT


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    return math.nan if _is_too_large(value) else float(value)
