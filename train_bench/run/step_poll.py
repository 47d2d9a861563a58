"""Poll of the ranks between steps: whether they have been warned of their end."""

from __future__ import annotations

import time
from collections.abc import Callable

from train_bench.core import preemption
from train_bench.core.job import Job
from train_bench.parallel import Parallel

PERIOD_SECONDS = 1.0
"""Training between two polls. A poll is a look at a file by rank 0 and a broadcast between hosts, not devices."""

MOST_STEPS = 100
"""Between two polls, since steps may become slower."""


class StepPoll:
    """Called by every rank after each step: True on all of them after the same one, once they have been warned. Rank 0
    tells the others how many steps the next poll is away."""

    def __init__(self, job: Job, parallel: Parallel, clock: Callable[[], float] = time.monotonic) -> None:
        self.warning: str | None = None
        self._job, self._parallel, self._clock = job, parallel, clock
        self._steps, self._due = 0, 1
        self._since = clock()

    def __call__(self) -> bool:
        self._steps += 1
        return self.warning is not None or (self._steps >= self._due and self._poll())

    def read_warning(self) -> str | None:
        """The warning as rank 0 sees it; None on other ranks."""
        return preemption.warning(self._job) if self._parallel.rank == 0 else None

    def _poll(self) -> bool:
        now = self._clock()
        pace = max(now - self._since, PERIOD_SECONDS / MOST_STEPS) / self._steps
        due = min(MOST_STEPS, max(1, int(PERIOD_SECONDS / pace)))
        self.warning, self._due = self._parallel.from_rank_zero((self.read_warning(), due))
        self._steps, self._since = 0, now
        return self.warning is not None
