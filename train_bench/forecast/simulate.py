"""Monte Carlo forecast of the minutes of a run and of the score, from samples to the target and pace.

    minutes = opening + units trained x time of a unit + evaluations x time of an evaluation

The number of evaluations follows from where a run is stopped, so nothing is rounded before it is averaged. Each
simulation is a whole campaign: it draws the error of the reference's mean, that of the pace, and N runs, whose times
are averaged as the rules say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train_bench.errors import RequestError
from train_bench.forecast.samples import Samples

Array = NDArray[np.float64]

SIMULATIONS = 4000

LEVELS = (0.8, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds of training, as equally likely draws: arrays of one length.

    opening      before the first block begins
    unit         of a unit of the benchmark's progress
    evaluation   of each evaluation
    between_runs standard deviation of ln(time of one run / that of another) at the same pace
    source       `probe`, `log`, `published` or `stated`
    message      its source, as a sentence
    notes        remarks
    """

    opening: Array
    unit: Array
    evaluation: Array
    between_runs: float
    source: str
    message: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A median and the central interval at each of `LEVELS`."""

    median: float
    within: Mapping[float, tuple[float, float]]

    def times(self, factor: float) -> Interval:
        """Convert to another unit."""
        within = {level: (factor * low, factor * high) for level, (low, high) in self.within.items()}
        return Interval(median=factor * self.median, within=within)

    def as_json(self) -> dict[str, Any]:
        """Plain data, for example {"median": 2.1, "80%": [1.9, 2.4], "95%": [1.8, 2.6]}."""
        bounds = {str(round(100 * level)) + "%": list(bounds) for level, bounds in self.within.items()}
        return {"median": self.median, **bounds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Forecast of a campaign.

    score       minutes: mean of `runs` runs without the `drop` lowest and highest
    run         minutes of one of them
    position    position at which a run stops, as the log counts
    evaluations median number of evaluations of a run
    shares      of a run's time, by part: opening, training, evaluation
    unfinished  share of runs that the schedule ends before they reach the target
    between     standard deviations of ln(score) that convergence alone and pace alone would give
    """

    score: Interval
    run: Interval
    position: Interval
    runs: int
    drop: int
    evaluations: int
    shares: Mapping[str, float]
    unfinished: float
    between: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        intervals = {name: getattr(self, name).as_json() for name in ("score", "run", "position")}
        return intervals | {
            "runs": self.runs,
            "drop": self.drop,
            "evaluations": self.evaluations,
            "shares": dict(self.shares),
            "unfinished": self.unfinished,
            "deviation_of_ln_score": dict(self.between),
        }


def simulate(samples: Samples, pace: Pace, *, runs: int, drop: int, seed: int = 0) -> Forecast:
    """Campaigns of `runs` runs. The same `seed` gives the same forecast."""
    rng = np.random.default_rng(seed)
    stops = samples.draw(rng, SIMULATIONS, runs)
    finite = np.isfinite(stops)
    if not finite.any():
        raise RequestError(
            f"No run would reach the target before the schedule ends at {samples.schedule.until:g}; the "
            f"reference needs {samples.mean():.4g} ({samples.message})."
        )
    unfinished = 1 - float(finite.mean())
    stops = np.where(finite, stops, samples.schedule.until)
    chosen = rng.integers(len(pace.unit), size=SIMULATIONS)
    of_run = np.exp(pace.between_runs * rng.standard_normal(stops.shape))
    opening, unit, evaluation = (draws[chosen, None] for draws in (pace.opening, pace.unit, pace.evaluation))
    minutes = _minutes(samples, stops, opening, unit, evaluation) * of_run
    score = olympic(minutes, drop)
    middle = [np.median(draws) for draws in (pace.opening, pace.unit, pace.evaluation)]
    evaluations = _evaluations(samples, stops)
    return Forecast(
        score=interval(score),
        run=interval(minutes.ravel()),
        position=interval(stops.ravel()),
        runs=runs,
        drop=drop,
        evaluations=int(np.median(evaluations)),
        shares=_shares(samples, np.median(stops), np.median(evaluations), middle),
        unfinished=unfinished,
        between={
            "convergence": _spread(olympic(_minutes(samples, stops, *middle), drop)),
            "pace": _spread(_minutes(samples, np.median(stops), opening, unit, evaluation)),
        },
    )


def olympic(values: Array, drop: int) -> Array:
    """Olympic mean of each row (rules, "Benchmark results"); of all values if too few are left."""
    runs = values.shape[1]
    kept = np.sort(values, axis=1)[:, drop : runs - drop] if runs > 2 * drop else values
    return np.asarray(kept.mean(axis=1))


def interval(values: Array, levels: Sequence[float] = LEVELS) -> Interval:
    """Median and central intervals of draws."""
    within = {}
    for level in levels:
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
        within[level] = (float(low), float(high))
    return Interval(median=float(np.median(values)), within=within)


def _minutes(samples: Samples, stops: Any, opening: Any, unit: Any, evaluation: Any) -> Array:
    trained = stops - samples.schedule.start
    return np.asarray((opening + trained * unit + _evaluations(samples, stops) * evaluation) / 60)


def _evaluations(samples: Samples, stops: Any) -> Array:
    return np.asarray(1 + np.rint((stops - samples.schedule.first) / samples.schedule.period))


def _shares(samples: Samples, stop: Any, evaluations: Any, middle: Sequence[Any]) -> dict[str, float]:
    parts = (middle[0], (stop - samples.schedule.start) * middle[1], evaluations * middle[2])
    names = ("opening", "training", "evaluation")
    return {name: float(part / sum(parts)) for name, part in zip(names, parts, strict=True)}


def _spread(values: Array) -> float:
    return float(np.std(np.log(values)))
