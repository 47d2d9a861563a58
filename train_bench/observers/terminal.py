"""Progress of a running campaign: a live line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from train_bench.core.digits import decimals_apart, distinct
from train_bench.core.event import Event
from train_bench.core.job import UNEQUAL_HARDWARE, Job
from train_bench.judge.finding import BREAKS, WAIVED, Finding
from train_bench.observers.observer import Observer
from train_bench.report.console import print_line

if TYPE_CHECKING:
    from train_bench.forecast.live import Forecast, Interval

TOLD_AFTER = 3
"""Evaluations of the first run after which a pipe gets the expected end of the campaign, once."""

QUIET_SECONDS = 60.0
"""In a pipe, an evaluation is a line only where so much time has passed since the last line: a run of seconds is one
line, a run of hours at most one a minute."""

CELLS = 10
"""Width of the bar of a campaign."""

BY_THE_SECOND = 600.0
"""Expected ends up to so many seconds ahead are printed to the second, later ones to the minute."""


SWEEP_JOB = "TRAIN_BENCH_SWEEP_JOB"
"""Environment variable with the number of a sweep's job, and whether other jobs run concurrently on this
machine."""


def sweep_job() -> tuple[str, bool]:
    """Prefix of the lines of this process; and true if no other job has the terminal."""
    number, _, how = os.environ.get(SWEEP_JOB, "").partition(" ")
    return (f"job {number}: " if number else ""), how != "together"


class Terminal(Observer):
    """Progress on a console: run and its place, epoch, quality against target, elapsed, time left.

    On a terminal the current run is one line that is redrawn, unless campaigns that run at the same time share it
    (`alone=False`); otherwise every run is a plain line, and evaluations are too if a minute passes without one.
    `clock` gives seconds. `side` names the campaign if two alternate, or several are one sweep; if they take
    `turns`, its end is not that of its own runs, and the duration of those is printed. `forecast` gives the forecast
    of the campaign, and `now` the time.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        *,
        side: str = "",
        alone: bool = True,
        turns: bool = False,
        forecast: Callable[[], Forecast | None] = lambda: None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._console = console
        self._forecast, self._now, self._turns = forecast, now, turns
        self._redrawn = console.is_terminal and alone
        self._clock = clock
        self._side = side
        self._live: Live | None = None
        self._total = self._done = 0
        self._evaluations = 0
        self._job: Job | None = None
        self._started = self._said = 0.0
        self._doing = ""
        self._quality = self._against = ""
        self._missed = False
        self._evaluated: tuple[float, float] | None = None
        self._told = False

    def campaign_started(self, *, total: int, done: int) -> None:
        self._total, self._done = total, done
        if done:
            self._say(f"{done} of {total} runs have a result already{self._expectation()}")

    def run_started(self, job: Job) -> None:
        self._job, self._evaluated = job, None
        self._started = self._said = self._clock()
        self._doing, self._quality, self._against, self._missed = "starting", "", "", False
        if self._redrawn:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def event(self, event: Event) -> None:
        job = self._job
        if job is None:
            return
        if event.key == "run_stop":
            self._missed = event.metadata.get("status") not in (None, "success")
        elif event.key == "init_start":
            self._doing = "building"
        elif event.key == UNEQUAL_HARDWARE and isinstance(event.value, list):
            for sentence in event.value:
                self._say(f"{self._name(job)}: warning: {sentence}")
        elif event.key == "block_start":
            self._doing = f"training from {job.unit.value} {event.metadata.get('first_epoch_num')}"
        elif event.key == "eval_accuracy":
            number = event.metadata.get("epoch_num")
            self._evaluated = (float(number or 0), self._clock())
            targets = [one.value for one in job.target.thresholds]
            self._doing = f"{job.unit.value} {number}: {_value(event.value, targets)} ({job.target})"
            self._against = _against_target(job, event.value)
            self._quality = f"{job.unit.value} {number} | {self._against}"
            self._evaluations += 1
            if not self._redrawn and self._clock() - self._said >= QUIET_SECONDS:
                self._say_evaluation(job)

    def finding(self, job: Job, finding: Finding) -> None:
        if finding.grade != WAIVED:
            what = "BREAKS A RULE" if finding.grade == BREAKS else "for review"
            self._say(f"{self._name(job)}: {what} [{finding.check}] {finding.message}")

    def tick(self) -> None:
        """Redraw: the last evaluation stays until the next."""
        if self._job is not None and self._live is not None:
            self._live.update(Text(self._line(self._job), no_wrap=True, overflow="ellipsis"), refresh=True)

    def _line(self, job: Job) -> str:
        """The most complete line that the terminal has room for."""
        begin, left = f"{self._name(job)} {bar(self._share(job))}", self._time_left()
        elapsed, short = _duration(self._elapsed()), left.partition(" (")[0]
        choices = (
            (begin, self._quality or self._doing, elapsed, left),
            (begin, self._against or self._doing, left or elapsed),
            (begin, self._against or self._doing, short or elapsed),
            (self._name(job), self._against or self._doing, short or elapsed),
        )
        lines = [" | ".join(part for part in choice if part) for choice in choices]
        return next((line for line in lines if len(line) < self._console.width), lines[-1])

    def _share(self, job: Job) -> float:
        """Share of the campaign that is done: of a run by its expected end, else by its last scheduled evaluation."""
        forecast, elapsed = self._forecast(), self._elapsed()
        share = 0.0
        if forecast is not None and forecast.run is not None:
            left = max(0.0, forecast.run.expected / 1000 - self._now().timestamp())
            share = elapsed / (elapsed + left) if left else 1.0
        elif self._evaluated is not None:
            share = self._evaluated[0] / job.schedule.points()[-1]
        return min(1.0, (self._done + share) / max(1, self._total))

    def run_ended(self, job: Job, *, failure: str | None) -> None:
        duration = _duration(self._elapsed())
        self._done += 1
        self._job = None
        self._clear()
        outcome = f"failed ({failure})" if failure else "target missed" if self._missed else "finished"
        said = f"{self._name(job)}: {outcome}, {self._doing}, {duration}, seed {job.seed}"
        self._say(f"{said}{self._expectation()}")

    def campaign_ended(self) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _name(self, job: Job) -> str:
        return f"{self._side}{job.numbered(self._total)}"

    def _elapsed(self) -> float:
        return self._clock() - self._started

    def _time_left(self) -> str:
        """Expected time left; before there is an expectation, the longest that this run may take."""
        forecast = self._forecast()
        if forecast is not None:
            return remaining(forecast.campaign, self._now())
        if self._job is not None and self._evaluated is not None and self._evaluated[0] > 0:
            number, when = self._evaluated
            last = self._job.schedule.points()[-1]
            per_unit = (when - self._started) / number
            others = self._total - self._done - 1
            return f"at most {_duration(per_unit * (last - number) + per_unit * last * others)} left"
        return ""

    def _say_evaluation(self, job: Job) -> None:
        due = self._done == 0 and self._evaluations >= TOLD_AFTER and not self._told
        self._told |= due
        self._said = self._clock()
        expected = self._expectation() if due else ""
        self._say(f"{self._name(job)}: {self._doing}, {_duration(self._elapsed())}{expected}")

    def _expectation(self) -> str:
        """Expected end of everything, in a pipe, as the end of a line; on a terminal the redrawn line has it."""
        forecast = None if self._redrawn else self._forecast()
        return "" if forecast is None else f"; {in_a_sentence(forecast, self._now(), turns=self._turns)}"

    def _say(self, text: str) -> None:
        print_line(self._console, text)


def bar(share: float) -> str:
    """Share as a bar of `CELLS` cells."""
    full = round(share * CELLS)
    return "█" * full + "░" * (CELLS - full)


def remaining(campaign: Interval, now: datetime) -> str:
    """`about 1:20 left (1:00 to 1:40)`, with the 80 % interval."""
    left = [max(0.0, end / 1000 - now.timestamp()) for end in campaign]
    expected, low, high = map(_duration, left)
    return f"about {expected} left ({low} to {high})" if left[2] else "longer than expected"


def in_a_sentence(forecast: Forecast, now: datetime, *, turns: bool = False) -> str:
    """Expected end of the campaign, and the probability that its RCP test passes."""
    what = "its runs take" if turns else "expected to"
    passes = forecast.passes
    chance = "" if passes is None else f"; probability that its RCP test passes: {_percent(passes)}"
    return f"{what} {_end(forecast.campaign, now, turns=turns)}{chance}"


def _percent(share: float) -> str:
    """Share of simulations; never printed as 0 or 100 %."""
    return "below 1 %" if share < 0.01 else "above 99 %" if share > 0.99 else f"{100 * share:.0f} %"


def _end(campaign: Interval, now: datetime, *, turns: bool) -> str:
    """`end at 14:05 (80 %: 13:58 to 14:20)`; of campaigns that alternate, the remaining time of their own runs."""
    now_ms = now.timestamp() * 1000
    if campaign.high < now_ms:
        late = _time_of_day(campaign.high, now, exact=now_ms - campaign.high < BY_THE_SECOND * 1000)
        return "longer than expected" if turns else f"end later than {late}"
    ends = [max(now_ms, value) for value in campaign]
    if turns:
        expected, low, high = (_duration((end - now_ms) / 1000) for end in ends)
        return f"about {expected} more{_interval(low, high)}"
    exact = max(ends) - now_ms < BY_THE_SECOND * 1000
    expected, low, high = (_time_of_day(end, now, exact=exact) for end in ends)
    return f"end at {expected}{_interval(low, high)}"


def _interval(low: str, high: str) -> str:
    """80 % interval; empty where it is shorter than what is printed."""
    return "" if low == high else f" (80 %: {low} to {high})"


def _time_of_day(end_ms: float, now: datetime, *, exact: bool) -> str:
    end = datetime.fromtimestamp(end_ms / 1000, tz=now.tzinfo)
    day = "" if end.date() == now.date() else f"{end:%Y-%m-%d} "
    return f"{day}{end:%H:%M:%S}" if exact else f"{day}{end:%H:%M}"


def _against_target(job: Job, logged: object) -> str:
    """`top1 0.951 of 0.975`, one for each metric of the target."""
    quality = job.target.quality_of(logged)
    return ", ".join(
        f"{one.metric} {distinct(quality.metrics[one.metric], one.value, decimals=3)[0]} of "
        f"{'' if one.higher_is_better else 'at most '}{one.value:g}"
        for one in job.target.thresholds
    )


def _value(value: object, targets: Sequence[float]) -> str:
    """A quality, in digits that tell it from the targets."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(number, targets)}" for name, number in value.items())
    return (
        f"{value:.{decimals_apart(value, *targets, decimals=4)}f}" if isinstance(value, float) else str(value)
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
