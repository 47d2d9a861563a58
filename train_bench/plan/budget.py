"""`stop_when=`: time limit of a run. A guard, not a stopping rule: a run that it ends has not converged."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from train_bench.core.job import Job
from train_bench.errors import RequestError

GRAMMAR = re.compile(r"\s*minutes\s*>\s*(\d+(?:\.\d*)?|\.\d+)\s*", re.ASCII)

ALLOWED = "write stop_when='minutes > NUMBER', the minutes on the clock of one run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Time limit in `minutes` of a run's clock."""

    minutes: float

    def spent(self, minutes: float) -> str | None:
        """Reason to end a run at this time of its clock, as a sentence; None if it may go on."""
        if minutes <= self.minutes:
            return None
        return (
            f"ended by the budget of the run, whose clock had counted {minutes:.2f} minutes "
            f"(stop_when='minutes > {self.minutes:g}')"
        )


def read(text: str) -> Budget:
    """Parse `stop_when=`. Raises `RequestError` for anything else, above all for a condition on the result: that would
    be another target."""
    match = GRAMMAR.fullmatch(text)
    if match is not None and 0 < float(match[1]) < math.inf:
        return Budget(minutes=float(match[1]))
    word = re.match(r"\s*(\w*)", text, re.ASCII)
    asked = word[1] if word is not None else ""
    if match is not None:
        reason = "leaves a run no time"
    elif asked == "minutes":
        reason = "is no budget"
    elif asked == "samples":
        reason = "counts samples, for which benchmark.evaluation.until is there, the last evaluation of a run"
    else:
        reason = "does not look at the clock; by its result, a run ends at the target of its round alone"
    raise RequestError(f"stop_when={text!r} {reason}: {ALLOWED}, or leave it out.")


def of(job: Job) -> Budget | None:
    """The time limit of a run; None without one."""
    return None if job.stop_when is None else read(job.stop_when)
