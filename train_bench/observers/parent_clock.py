"""The launching process's own clock: from the line `run_start` to `run_stop`, as they are seen outside the ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from train_bench.core.event import Event
from train_bench.observers.observer import Observer


class ParentClock(Observer):
    """Seconds from the first `run_start` to the last `run_stop` of a run, by the monotonic clock of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started: float | None = None
        self._stopped: float | None = None

    def event(self, event: Event) -> None:
        if event.key == "run_start" and self._started is None:
            self._started = self._clock()
        elif event.key == "run_stop":
            self._stopped = self._clock()

    def as_json(self) -> dict[str, Any]:
        """As in the record of an attempt; null without both lines."""
        if self._started is None or self._stopped is None:
            return {"clock_seconds": None}
        return {"clock_seconds": round(self._stopped - self._started, 3)}
