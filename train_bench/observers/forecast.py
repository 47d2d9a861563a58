"""Observer of a campaign with a current forecast of its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from train_bench.core.event import Event
from train_bench.core.job import Job
from train_bench.forecast.live import Campaign, Forecast, ObservedRun
from train_bench.judge import rcp
from train_bench.logs import log
from train_bench.logs.record import EVALUATION
from train_bench.observers.observer import Observer
from train_bench.rules.ruleset import BenchmarkRules


def wall_clock_ms() -> int:
    """Current time, in the unit of logs."""
    return time.time_ns() // 1_000_000


class ForecastObserver(Observer):
    """`latest` is the forecast after the last event: None before the first one, and after an error, which must not
    affect the campaign. `only` are the numbers of the runs that are carried out here, None all."""

    def __init__(
        self,
        jobs: Sequence[Job],
        rules: BenchmarkRules,
        points: Sequence[rcp.Point],
        *,
        limit_minutes: float | None = None,
        only: Sequence[int] | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.latest: Forecast | None = None
        self._jobs, self._only, self._now_ms = jobs, only, now_ms
        self._campaign = Campaign(
            jobs[0].schedule,
            rules,
            points,
            jobs[0].config["hyperparameters"]["global_batch_size"],
            limit_minutes=limit_minutes,
        )
        self._to_do = 0
        self._current: ObservedRun | None = None
        self._launched_ms = 0
        self._overhead_ms: list[int] = []

    def campaign_started(self, *, total: int, done: int) -> None:
        """Use runs that have a result already as evidence."""
        for job in self._jobs:
            if job.result_file.exists():
                run = self._campaign.new_run()
                for event in log.read(job.result_file).events:
                    run.event(event)
                self._campaign.finished.append(run)
            elif self._only is None or job.index in self._only:
                self._to_do += 1
        self._update()

    def run_started(self, job: Job) -> None:
        self._current, self._launched_ms = self._campaign.new_run(), self._now_ms()
        self._to_do -= 1

    def event(self, event: Event) -> None:
        """A new line of the run's log; evaluations change the forecast."""
        if self._current is not None:
            self._current.event(event)
            if event.key in EVALUATION:
                self._update()

    def run_ended(self, job: Job, *, failure: str | None) -> None:
        """A run has ended: more evidence for the others."""
        run, self._current = self._current, None
        if run is None:
            return
        if run.started_ms is not None and run.stopped_ms is not None:
            self._overhead_ms.append(self._now_ms() - self._launched_ms - (run.stopped_ms - run.started_ms))
        self._campaign.finished.append(run)
        self._update()

    def campaign_ended(self) -> None:
        self.latest = None

    def _update(self) -> None:
        current = self._current if self._current is not None and self._current.stopped_ms is None else None
        try:
            self.latest = self._campaign.forecast(
                self._now_ms(), current, to_do=self._to_do, around_seconds=self._overhead()
            )
        except Exception:
            self.latest = None

    def _overhead(self) -> float:
        """Known seconds of a run outside its clock: launch, build and end."""
        known = self._overhead_ms or [
            run.started_ms - (run.first_ms or run.started_ms)
            for run in self._campaign.finished
            if run.started_ms is not None
        ]
        if known:
            return max(0.0, sum(known) / len(known) / 1000)
        started_ms = self._current.started_ms if self._current is not None else None
        return 0.0 if started_ms is None else max(0.0, (started_ms - self._launched_ms) / 1000)
