"""Live forecast: end of the current run and of its campaign, from the evaluations so far, the finished runs of the
campaign, and the reference.

A run needs as much training as the reference, times an unknown factor of the campaign: the finished runs, and the fact
that the current one has not reached the target yet, give the likelihood of each factor. The pace of the evaluations
converts training to time; the pace of other runs counts as far as runs agree. The quality curve is not used. All of it
takes a few milliseconds, in the launching process, at events that come seconds apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from train_bench.core.event import Event
from train_bench.errors import RequestError
from train_bench.forecast.samples import Samples, expect
from train_bench.judge import rcp
from train_bench.logs.record import EVALUATION, SUCCESS, TRAIN_SAMPLES
from train_bench.progress import EvalSchedule
from train_bench.rules.ruleset import BenchmarkRules

Array = NDArray[np.float64]

SIMULATIONS = 1000

LOW, HIGH = 0.1, 0.9
"""The printed interval is the 80 % interval."""

# Standard deviations of logarithms.
OF_CAMPAIGNS = 0.03  # of training of campaigns over the reference: 5 % cover 80 % of published entries
OF_OTHERS = 0.15  # of the same, for one campaign in ten
OF_SEEDS = 0.1  # of training of runs, without points; counts as two runs
OF_PACE = 0.015  # of the time from one evaluation to the next; counts as two of them
OF_RUNS = 0.02  # of the pace of runs in a campaign; counts as two runs
OF_FIRST = 0.1  # of the pace until the first evaluation, in which the data are opened
OF_TIMES = 0.002  # of the remaining time of a run, however even its pace is

FROM_THE_TAIL = 0.1
"""Share of runs that need an amount of training outside the reference's distribution."""

ODD = 0.02
"""Share of runs that are no evidence about others: mostly runs that never reach the target."""


class Interval(NamedTuple):
    """Median and 80 % interval, in milliseconds since the epoch or in minutes."""

    expected: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """End of the current run and of the campaign, in milliseconds since the epoch, and the probability that its RCP
    check passes; None without a current run, or without a check to come."""

    run: Interval | None
    campaign: Interval
    passes: float | None


@dataclass(slots=True, kw_only=True)
class ObservedRun:
    """Log of one run so far; `positions` and `times_ms` are of its evaluations, `first_ms` is the time of its first
    line."""

    schedule: EvalSchedule
    counted: str
    first_ms: int | None = None
    started_ms: int | None = None
    stopped_ms: int | None = None
    reached: bool = False
    positions: list[float] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)

    def event(self, event: Event) -> None:
        """Add the next line."""
        if self.first_ms is None:
            self.first_ms = event.time_ms
        if event.key == "run_start":
            self.started_ms = event.time_ms
        elif event.key == "run_stop" and self.stopped_ms is None:
            self.stopped_ms, self.reached = event.time_ms, event.metadata.get("status") == SUCCESS
        elif event.key in EVALUATION and self.started_ms is not None and self.stopped_ms is None:
            self._evaluated(event)

    def _evaluated(self, event: Event) -> None:
        logged = event.metadata.get("epoch_num" if self.counted == TRAIN_SAMPLES else self.counted)
        number = float(logged) if isinstance(logged, (int, float)) else math.nan
        if "metric" in event.metadata and self.positions and number == self.positions[-1]:
            return  # another metric of the same evaluation
        last = self.positions[-1] if self.positions else self.schedule.start + self.schedule.first / 4
        due = self.schedule.first + len(self.positions) * self.schedule.period
        # Logs of BERT in rounds 1.0 and 1.1 give 1 at each evaluation.
        self.positions.append(number if last < number < math.inf else due)
        self.times_ms.append(event.time_ms)

    @property
    def seconds(self) -> Array:
        """Seconds from the start of the clock to each evaluation."""
        return (np.array(self.times_ms, dtype=float) - (self.started_ms or 0)) / 1000

    def paces(self) -> tuple[float, float] | None:
        """ln of the seconds per unit from the first evaluation to the last, and its variance; None before the
        second."""
        if len(self.positions) < 2 or self.times_ms[-1] <= self.times_ms[0]:
            return None
        gaps, times = np.diff(self.positions), np.diff(self.seconds)
        pace = times.sum() / gaps.sum()
        deviations = np.log(np.maximum(times / gaps, pace * 1e-3) / pace)
        spread = (2 * OF_PACE**2 + (deviations**2).sum()) / (1 + len(gaps))
        return math.log(pace), spread / len(gaps)

    def opening(self, pace: float) -> float:
        """Seconds until the first evaluation beyond its training at that pace; negative if evaluations come more often
        later."""
        return float(self.seconds[0]) - (self.positions[0] - self.schedule.start) * pace


class Crossing:
    """Survival function of the target position, given the campaign's factor on the reference's training, exp(shift).
    `spread` is the standard deviation of the tails, `common` of the shift, both of logarithms."""

    def __init__(
        self, values: Array, width: float, spread: float, common: float, *, tail: float = FROM_THE_TAIL
    ) -> None:
        values = np.maximum(values, width / 4)
        self._at = np.linspace(math.log(values.min() / 4), math.log(values.max() * 6), 600)
        trained = np.exp(self._at)[:, None]
        within = np.clip((values + width / 2 - trained) / width, 0.0, 1.0)
        scale = spread * math.sqrt(3) / math.pi
        around = 1 / (1 + np.exp(np.clip((self._at[:, None] - np.log(values)) / scale, -500, 500)))
        self._surviving = ((1 - tail) * within + tail * around).mean(axis=1)
        self.shifts = np.linspace(-0.5, 0.5, 201)
        usual, other = (
            np.exp(-0.5 * (self.shifts / deviation) ** 2) / deviation
            for deviation in (common, max(common, OF_OTHERS))
        )
        self.weights = 0.9 * usual + 0.1 * other

    def surviving(self, trained: float, shifts: Array) -> Array:
        """Share of runs that have not reached the target after so much training."""
        at = math.log(max(trained, 1e-300)) - shifts
        surviving: Array = np.interp(at, self._at, self._surviving, left=1.0)
        return surviving

    def update(self, before: float, after: float | None) -> None:
        """Update with a run: not at the target at `before`, at the target at `after` (None: unknown)."""
        until = 0.0 if after is None else self.surviving(after, self.shifts)
        self.weights = self.weights * (self.surviving(before, self.shifts) - until + ODD)

    def likely_shifts(self, count: int) -> Array:
        """`count` shifts, distributed by likelihood."""
        cumulated = np.cumsum(self.weights) / self.weights.sum()
        at = np.searchsorted(cumulated, (np.arange(count) + 0.5) / count)
        return self.shifts[at]

    def draw(self, uniform: Array, shifts: Array, beyond: float = 0.0) -> Array:
        """Positions at which runs that have not reached the target by `beyond` reach it, one for each number between 0
        and 1."""
        surviving = uniform * self.surviving(beyond, shifts)
        trained = np.exp(np.interp(surviving, self._surviving[::-1], self._at[::-1]) + shifts)
        return np.maximum(trained, beyond)


class Campaign:
    """State of a campaign that goes on; `finished` are its ended runs, successful or not."""

    def __init__(
        self,
        schedule: EvalSchedule,
        rules: BenchmarkRules,
        points: Sequence[rcp.Point],
        batch_size: int,
        *,
        limit_minutes: float | None = None,
    ) -> None:
        self.schedule = schedule
        self.finished: list[ObservedRun] = []
        self._end = schedule.points()[-1] if math.isfinite(schedule.until) else math.inf
        self._rules = rules
        self._limit = math.inf if limit_minutes is None else limit_minutes * 60
        self._samples = _expected(points, rules, batch_size)
        self._bound = rcp.lowest_mean_at(points, rules, batch_size)

    def new_run(self) -> ObservedRun:
        """Empty record of a run that begins."""
        return ObservedRun(schedule=self.schedule, counted=self._rules.counted)

    def forecast(
        self, now_ms: int, current: ObservedRun | None, *, to_do: int, around_seconds: float = 0.0
    ) -> Forecast | None:
        """End of the campaign, with `to_do` runs after the current one, each of which takes `around_seconds` besides
        its clock. `current` has not stopped. None while the pace or the needed training is unknown."""
        crossing, pace = self._crossing(), self._pace(current)
        if crossing is None or pace is None or (current is None and to_do == 0):
            return None
        start = self.schedule.start
        if current is not None and current.positions:
            crossing.update(current.positions[-1] - start, None)
        rng = np.random.default_rng(0)
        shifts = crossing.likely_shifts(SIMULATIONS)
        of_campaign, of_run, opening = pace
        closing = self._closing()
        at_usual_pace, end_ms = np.full((2, SIMULATIONS), float(now_ms))
        ends: list[Array] = []
        run = None
        if current is not None:
            last = current.positions[-1] if current.positions else None
            uniform = rng.permutation((np.arange(SIMULATIONS) + 0.5) / SIMULATIONS)
            trained = start + crossing.draw(uniform, shifts, 0.0 if last is None else last - start)
            position, missed = self._evaluation(trained, last)
            passed = opening if last is None else float(current.seconds[-1])
            left = position - (start if last is None else last)
            noise = OF_TIMES * rng.standard_normal(SIMULATIONS)
            began = current.started_ms if current.started_ms is not None else now_ms
            at_usual_pace, end_ms = (
                np.maximum(began + 1000 * np.minimum(passed + left * speed + closing, self._limit), now_ms)
                for speed in (math.exp(of_run.mean), np.exp(of_run.draw(rng) + noise))
            )
            too_long = passed + left * math.exp(of_run.mean) > self._limit
            ends.append(np.where(missed | too_long, np.inf, position))
            run = _interval(at_usual_pace, end_ms)
        if to_do:
            shape = (SIMULATIONS, to_do)
            trained = start + crossing.draw(rng.random(shape), shifts[:, None])
            position, missed = self._evaluation(trained, None)
            noise = of_campaign.draw(rng)[:, None] + OF_RUNS * rng.standard_normal(shape)
            at_usual_pace, end_ms = (
                before
                + 1000 * np.minimum(opening + (position - start) * speed + closing, self._limit).sum(axis=1)
                + 1000 * to_do * around_seconds
                for before, speed in (
                    (at_usual_pace, math.exp(of_campaign.mean)),
                    (end_ms, np.exp(noise)),
                )
            )
            too_long = opening + (position - start) * math.exp(of_campaign.mean) > self._limit
            ends.append(np.where(missed | too_long, np.inf, position))
        return Forecast(run=run, campaign=_interval(at_usual_pace, end_ms), passes=self._passing(ends))

    def _crossing(self) -> Crossing | None:
        """Crossing from the points, corrected by the finished runs; without points from the finished runs alone."""
        start, period = self.schedule.start, self.schedule.period
        if self._samples is not None:
            values = self._samples.values - start
            width = self._samples.resolution
            spread = max(float(np.std(np.log(np.maximum(values, width / 4)))), 0.03)
            crossing = Crossing(values, width, spread, math.hypot(OF_CAMPAIGNS, self._samples.log_error))
            for run in self.finished:
                if run.positions:
                    last = run.positions[-1] - start
                    before = run.positions[-2] - start if len(run.positions) > 1 else 0.0
                    crossing.update(before if run.reached else last, last if run.reached else None)
            return crossing
        needed = [run.positions[-1] - start - period / 2 for run in self.finished if run.reached]
        if not needed:
            return None
        logs = np.log(np.maximum(needed, period / 4))
        spread = math.sqrt((2 * OF_SEEDS**2 + ((logs - logs.mean()) ** 2).sum()) / (1 + len(logs)))
        center = np.exp(logs.mean(keepdims=True))
        return Crossing(center, period, spread, spread / math.sqrt(len(logs)), tail=1.0)

    def _pace(self, current: ObservedRun | None) -> tuple[_Normal, _Normal, float] | None:
        """ln of the seconds per unit, of this campaign's runs and of the current one, and the seconds before a run
        trains."""
        others = [(run, pace) for run in self.finished if (pace := run.paces()) is not None]
        of_campaign = opening = None
        if others:
            logs = np.array([pace[0] for _, pace in others])
            spread = (2 * OF_RUNS**2 + ((logs - logs.mean()) ** 2).sum()) / (1 + len(logs))
            of_campaign = _Normal(mean=float(logs.mean()), variance=spread * (1 + 1 / len(logs)))
            opening = float(np.mean([run.opening(math.exp(pace[0])) for run, pace in others]))
        of_run = of_campaign
        if current is not None and current.positions and current.started_ms is not None:
            own = self._own_pace(current, opening)
            of_run = own if of_campaign is None else of_campaign.and_also(own)
            if opening is None:
                opening = current.opening(math.exp(own.mean))
        if of_run is None:
            return None
        return of_campaign or of_run, of_run, opening or 0.0

    def _closing(self) -> float:
        """Seconds from the last evaluation until the clock stops."""
        seconds = [
            (run.stopped_ms - run.times_ms[-1]) / 1000
            for run in self.finished
            if run.reached and run.stopped_ms is not None and run.times_ms
        ]
        return float(np.mean(seconds)) if seconds else 0.0

    def _own_pace(self, current: ObservedRun, opening: float | None) -> _Normal:
        paces = current.paces()
        if paces is not None:
            return _Normal(*paces)
        trained = current.positions[0] - self.schedule.start
        seconds = max(float(current.seconds[0]) - (opening or 0.0), 1e-3)
        return _Normal(
            math.log(seconds / trained), (OF_FIRST if opening is None else OF_PACE * math.sqrt(2)) ** 2
        )

    def _evaluation(self, positions: Array, last: float | None) -> tuple[Array, NDArray[np.bool_]]:
        """Evaluation at which the target is found reached, after the `last`; and whether the schedule ends before."""
        schedule = self.schedule
        first = schedule.first if last is None else last + schedule.period
        steps = np.maximum(np.ceil((positions - first) / schedule.period - 1e-9), 0.0)
        found = first + steps * schedule.period
        end = max(self._end, last or 0.0)
        return np.minimum(found, end), found > end + 1e-6 * schedule.period

    def _passing(self, ends: Sequence[Array]) -> float | None:
        """Share of simulations in which the campaign's runs pass the RCP check."""
        rules = self._rules
        known = [run.positions[-1] if run.reached and run.positions else math.inf for run in self.finished]
        to_come = [np.reshape(one, (SIMULATIONS, -1)) for one in ends]
        if self._bound is None or len(known) + sum(one.shape[1] for one in to_come) != rules.runs:
            return None
        all_ends = np.hstack([np.tile(known, (SIMULATIONS, 1)), *to_come])
        kept = np.sort(all_ends, axis=1)[:, rules.drop : rules.runs - rules.drop]
        means = kept.mean(axis=1)
        return float((np.isfinite(means) & (means >= self._bound)).mean())


@dataclass(frozen=True, slots=True)
class _Normal:
    mean: float
    variance: float

    def and_also(self, other: _Normal) -> _Normal:
        """Combine two independent estimates."""
        total = 1 / self.variance + 1 / other.variance
        mean = (self.mean / self.variance + other.mean / other.variance) / total
        return _Normal(mean, 1 / total)

    def draw(self, rng: np.random.Generator) -> Array:
        return self.mean + math.sqrt(self.variance) * rng.standard_normal(SIMULATIONS)


def _expected(points: Sequence[rcp.Point], rules: BenchmarkRules, batch_size: int) -> Samples | None:
    try:
        return expect(points, rules, batch_size)
    except RequestError:  # without points from the finished runs
        return None


def _interval(at_usual_pace: Array, values: Array) -> Interval:
    """Median at the most likely pace, on an evaluation if it is that of one run; the interval with all uncertainty."""
    expected = float(np.quantile(at_usual_pace, 0.5, method="inverted_cdf"))
    low, high = (float(value) for value in np.quantile(values, (LOW, HIGH)))
    return Interval(expected, min(low, expected), max(high, expected))
