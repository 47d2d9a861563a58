"""The launching process's own clock: from the line `run_start` to `run_stop`, as they are seen outside the ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from train_bench.core.event import Event
from train_bench.observers.observer import Observer


def suspended_seconds() -> float | None:
    """Time that this machine was suspended since its start, which the monotonic clock leaves out; None if the system
    does not tell (Linux does)."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC))


class ParentClock(Observer):
    """Seconds from the first `run_start` to the last `run_stop` of a run, by the monotonic clock of this process, and
    the time that the machine was suspended meanwhile, which that clock and the one of the log leave out. Of a run that
    goes on in this process, `earlier_seconds` by the wall clock come before."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        suspended: Callable[[], float | None] = suspended_seconds,
        *,
        earlier_seconds: float = 0.0,
    ) -> None:
        self._earlier = earlier_seconds
        self._clock, self._suspended = clock, suspended
        self._started: float | None = None
        self._stopped: float | None = None
        self._before: float | None = None
        self._after: float | None = None

    def event(self, event: Event) -> None:
        if event.key == "run_start" and self._started is None:
            self._started, self._before = self._clock() - self._earlier, self._suspended()
        elif event.key == "run_stop":
            self._stopped, self._after = self._clock(), self._suspended()

    def as_json(self) -> dict[str, Any]:
        """As in the record of an attempt; null without both lines."""
        if self._started is None or self._stopped is None:
            return {"clock_seconds": None, "suspended_seconds": None}
        known = self._before is not None and self._after is not None
        return {
            "clock_seconds": round(self._stopped - self._started, 3),
            "suspended_seconds": round((self._after or 0.0) - (self._before or 0.0), 3) if known else None,
        }
