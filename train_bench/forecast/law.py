"""Batch size law of convergence: E(B) = E_min (1 + B / B_crit).

Two constants, fitted to reference convergence points: E_min is the training of a very small batch, and at B_crit a run
needs twice that. The steps of a run are E(B) / B, so beyond B_crit more than half of the samples save no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train_bench.errors import RequestError
from train_bench.judge.rcp import Point
from train_bench.progress import Unit
from train_bench.rules.ruleset import BenchmarkRules

TYPICAL_ERROR = 0.08
"""Standard deviation of ln(truth / law) before any points: the root mean square error of inner points of the official
sets by the law of the others, of which half are below 4.4 %. With it the largest point of an official set is 1.1 of the
stated deviations from the law of the others, by root mean square."""

_EXPECTED_BEFORE = 2  # prior weight: deviations of TYPICAL_ERROR besides those of a set's own points
_BOUNDS = 1e-3, 1e3  # of B_crit, as multiples of the smallest and of the largest batch size
_CANDIDATES = 60  # values of B_crit that are tried at a time
_REFINEMENTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """`e_min` in the benchmark's unit (training done, without the log's initial value), `b_crit` in samples of a batch,
    `batch_sizes` those of the points, `log_residual` the standard deviation of ln(point / law), with two degrees of
    freedom less than points (0 for two points), and `leave_one_out` for each point ln(point / law fitted to the
    others), empty for two points. Where a benchmark counts steps, `e_min` is in samples and `in_steps` true."""

    e_min: float
    b_crit: float
    batch_sizes: tuple[int, ...]
    log_residual: float
    leave_one_out: tuple[float, ...]
    in_steps: bool = False

    def at(self, batch_size: float) -> float:
        """Training of a run at a batch size, in the benchmark's unit."""
        needed = self.e_min * (1 + batch_size / self.b_crit)
        return needed / batch_size if self.in_steps else needed

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def __str__(self) -> str:
        divided = " / B" if self.in_steps else ""
        return f"{self.e_min:.4g} (1 + B / {self.b_crit:.4g}){divided}"

    def log_error(self, batch_size: float) -> float:
        """Standard deviation of ln(truth / law) at a batch size: the deviation of a point from the law and that of the
        two constants, by linear error propagation, so that it grows with the distance from the points."""
        freedom = len(self.batch_sizes) - 2
        square = (freedom * self.log_residual**2 + _EXPECTED_BEFORE * TYPICAL_ERROR**2) / (
            freedom + _EXPECTED_BEFORE
        )
        slopes = _slopes(np.array(self.batch_sizes, dtype=float), self.b_crit)
        at = _slopes(np.array([float(batch_size)]), self.b_crit)[0]
        return float(np.sqrt(square * (1 + at @ np.linalg.pinv(slopes.T @ slopes) @ at)))


def of(points: Sequence[Point], rules: BenchmarkRules) -> Law:
    """The law of a benchmark's points."""
    rule = rules.schedule_at(points[0].batch_size) if points else None
    return fit(points, rule.start if rule else 0.0, in_steps=rules.unit is Unit.STEP)


def fit(points: Sequence[Point], start: float = 0.0, *, in_steps: bool = False) -> Law:
    """Fit the law to at least two batch sizes; `start` is the benchmark's logged value before any training."""
    sizes = np.array([point.batch_size for point in points], dtype=float)
    if len(set(sizes)) < 2:
        given = ", ".join(f"{size:g}" for size in sorted(set(sizes))) or "none"
        raise RequestError(
            "The law over the batch size needs reference convergence points at two batch sizes or more; "
            f"there are points at: {given}. Make points at other batch sizes with train-bench rcp."
        )
    needed = np.array([point.mean for point in points]) - start
    logs = np.log(needed * sizes if in_steps else needed)
    e_min, b_crit = _fitted(sizes, logs)
    residuals = logs - np.log(e_min * (1 + sizes / b_crit))
    freedom = len(points) - 2
    return Law(
        e_min=e_min,
        b_crit=b_crit,
        batch_sizes=tuple(point.batch_size for point in points),
        log_residual=float(np.sqrt(np.sum(residuals**2) / freedom)) if freedom else 0.0,
        leave_one_out=_left_out(sizes, logs),
        in_steps=in_steps,
    )


def _left_out(sizes: NDArray[np.float64], logs: NDArray[np.float64]) -> tuple[float, ...]:
    errors = []
    for index in range(len(sizes)):
        others = np.arange(len(sizes)) != index
        if len(set(sizes[others])) < 2:
            return ()
        e_min, b_crit = _fitted(sizes[others], logs[others])
        errors.append(float(logs[index] - np.log(e_min * (1 + sizes[index] / b_crit))))
    return tuple(errors)


def _fitted(sizes: NDArray[np.float64], logs: NDArray[np.float64]) -> tuple[float, float]:
    """E_min and B_crit with the least sum of soft-L1 losses of the logarithms: B_crit by a refined grid search, E_min
    in closed form up to its weights."""
    low, high = np.log(_BOUNDS[0] * sizes.min()), np.log(_BOUNDS[1] * sizes.max())
    for _ in range(_REFINEMENTS):
        candidates = np.linspace(low, high, _CANDIDATES)
        shape = np.log1p(sizes / np.exp(candidates)[:, None])
        level, losses = _levels(logs - shape)
        best = int(np.argmin(losses))
        low, high = candidates[max(best - 1, 0)], candidates[min(best + 1, _CANDIDATES - 1)]
    return float(np.exp(level[best])), float(np.exp(candidates[best]))


def _levels(differences: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimiser of the sum of 2 (sqrt(1 + r^2) - 1) to the values of each row, and that sum."""
    level = differences.mean(axis=1)
    for _ in range(4):
        weights = 1 / np.sqrt(1 + (differences - level[:, None]) ** 2)
        level = (weights * differences).sum(axis=1) / weights.sum(axis=1)
    residuals = differences - level[:, None]
    return level, 2 * (np.sqrt(1 + residuals**2) - 1).sum(axis=1)


def _slopes(sizes: NDArray[np.float64], b_crit: float) -> NDArray[np.float64]:
    """Derivatives of ln E with respect to ln E_min and ln B_crit, one row for each batch size."""
    return np.stack([np.ones_like(sizes), -sizes / (b_crit + sizes)], axis=1)
