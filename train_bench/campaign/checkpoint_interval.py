"""Checkpoint interval and expected time on a machine that fails, by the formulas of Young (1974) and Daly (2006), "A
higher order estimate of the optimum checkpoint interval for restart dumps". Times in seconds.

    M  mean time between failures, which come after exponentially distributed times (a Poisson process)
    C  writing a checkpoint
    R  from a failure until training goes on; failures may come in it, too
    T  the training itself, without any of that
    t  training from one checkpoint to the next

Both formulas take R and C to be the same every time, and T to be many intervals long.
"""

from __future__ import annotations

import math
from typing import Any

from train_bench.logs.restarts import Restarts


def young_interval(mtbf: float, checkpoint: float) -> float:
    """The best t to first order, sqrt(2 C M)."""
    return math.sqrt(2 * checkpoint * mtbf)


def daly_interval(mtbf: float, checkpoint: float) -> float:
    """The best t by Daly's perturbation solution,
    sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C for C < 2 M, and M for a C above that."""
    if checkpoint >= 2 * mtbf:
        return mtbf
    part = checkpoint / (2 * mtbf)
    return young_interval(mtbf, checkpoint) * (1 + math.sqrt(part) / 3 + part / 9) - checkpoint


def young_time(training: float, interval: float, *, mtbf: float, checkpoint: float, restart: float) -> float:
    """Expected time to first order: T (1 + C / t) for training and checkpoints, and for each of the T / M failures half
    a lost interval, and R."""
    failures = training / mtbf
    return training * (1 + checkpoint / interval) + failures * (interval / 2 + restart)


def daly_time(training: float, interval: float, *, mtbf: float, checkpoint: float, restart: float) -> float:
    """Daly's complete expected time, M e^(R / M) (e^((t + C) / M) - 1) T / t; infinite on overflow."""
    try:
        once = math.exp(restart / mtbf) * math.expm1((interval + checkpoint) / mtbf)
    except OverflowError:
        return math.inf
    return mtbf * once * training / interval


def expected(measured: Restarts, mtbf: float) -> dict[str, Any] | None:
    """Expected values for the measured costs of a run: the best intervals, and the times for its own interval; None
    without checkpoints or training."""
    costs_of_run = measured.as_json()
    training, interval, checkpoint = (
        costs_of_run[name] for name in ("useful_seconds", "interval", "checkpoint")
    )
    if not interval or interval <= 0 or training <= 0 or checkpoint < 0 or mtbf <= 0:
        return None
    costs = {"mtbf": mtbf, "checkpoint": checkpoint, "restart": costs_of_run["restart"] or 0.0}
    daly = daly_time(training, interval, **costs)
    return {
        "mtbf": mtbf,
        "young_interval": young_interval(mtbf, checkpoint),
        "daly_interval": daly_interval(mtbf, checkpoint),
        "young_seconds": young_time(training, interval, **costs),
        "daly_seconds": daly if math.isfinite(daly) else None,
    }
