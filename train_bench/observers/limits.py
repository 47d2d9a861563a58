"""Limits that end a run: start, heartbeat and budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from train_bench.core.event import Event
from train_bench.core.job import Job
from train_bench.observers.observer import Observer
from train_bench.plan import budget

GRACE_SECONDS = 10.0
"""Seconds by which the launching process detects a hang later than the ranks, so that they can report the
place."""


class RunWatchdog(Observer):
    """Limits of a run, checked from outside: also when the ranks can do nothing themselves, because they never
    started, or are stopped."""

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job
        self._clock = clock
        self._beat: int | None = None
        self._since = clock()

    def tick(self) -> str | None:
        """Reason to end the run now, as a sentence; None without one."""
        try:
            beat = (self._job.ranks_folder / "heartbeat").stat().st_mtime_ns
        except FileNotFoundError:
            beat = None
        if beat != self._beat:
            self._beat, self._since = beat, self._clock()
        waited = self._clock() - self._since
        if self._beat is None and waited > self._job.start_limit_seconds:
            return self._not_started()
        silence = self._job.stall_limit_seconds
        if self._beat is not None and silence is not None and waited > silence + GRACE_SECONDS:
            return f"no heartbeat of rank 0 for {waited:.0f} s (stall_limit_seconds)"
        return None

    def _not_started(self) -> str:
        job = self._job
        hosts = Counter(path.name.rpartition("_")[0] for path in job.ranks_folder.glob("arrived/*"))
        started = hosts.total()
        limit = f"{job.start_limit_seconds:g} s (start_limit_seconds)"
        if started >= job.world_size and job.command is not None:
            return f"its program has not written a log line within {limit}"
        if started >= job.world_size:
            return f"{started} ranks started, but did not complete the rendezvous within {limit}"
        where = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
        return (
            f"{job.world_size} ranks were requested, but only {started} started within "
            f"{limit}{': ' if where else ''}{where}"
        )


class BudgetGuard(Observer):
    """Budget of a run: ends it when its clock has counted `max_minutes=`; measured here, so that the
    clocks of other hosts do not matter. `earlier_seconds` were on it before this process watched it."""

    def __init__(
        self, job: Job, clock: Callable[[], float] = time.monotonic, *, earlier_seconds: float = 0.0
    ) -> None:
        self.reason: str | None = None
        self._earlier = earlier_seconds
        self._budget = budget.of(job)
        self._clock = clock
        self._started: float | None = None

    def event(self, event: Event) -> None:
        if event.key == "run_start" and self._started is None:
            self._started = self._clock() - self._earlier
        elif event.key == "run_stop":
            self._budget = None

    def tick(self) -> str | None:
        """Reason to end the run now, as a sentence; None while it may go on."""
        if self._budget is not None and self._started is not None:
            self.reason = self._budget.spent((self._clock() - self._started) / 60)
        return self.reason
