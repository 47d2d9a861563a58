"""`max_minutes=`: time limit of a run. A guard, not a stopping rule: a run that it ends has not converged."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from train_bench.core.job import Job
from train_bench.errors import RequestError

GRAMMAR = re.compile(r"\s*minutes\s*>\s*(\d+(?:\.\d*)?|\.\d+)\s*", re.ASCII)
"""The limit as plans record it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Time limit in `minutes` of a run's clock. Raises `RequestError` for a limit that leaves a run no time."""

    minutes: float

    def __post_init__(self) -> None:
        if not 0 < self.minutes < math.inf:
            raise RequestError(
                f"max_minutes is {self.minutes:g}; give minutes above 0 on the clock of a run, or leave it out."
            )

    @property
    def text(self) -> str:
        """The limit as plans record it."""
        return f"minutes > {self.minutes:.12g}"

    def spent(self, minutes: float) -> str | None:
        """Reason to end a run at this time of its clock, as a sentence; None if it may go on."""
        if minutes <= self.minutes:
            return None
        return (
            f"ended by the budget of the run, whose clock had counted {minutes:.2f} minutes "
            f"(max_minutes={self.minutes:g})"
        )


def read(text: str) -> Budget:
    """Parse the limit of a plan. Raises `RequestError` for anything else."""
    match = GRAMMAR.fullmatch(text)
    if match is None:
        raise RequestError(f"stop_when is {text!r}; a plan has 'minutes > NUMBER'.")
    return Budget(minutes=float(match[1]))


def of(job: Job) -> Budget | None:
    """The time limit of a run; None without one."""
    return None if job.stop_when is None else read(job.stop_when)
