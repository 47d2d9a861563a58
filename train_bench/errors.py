"""Errors for users, as a tree.

TrainBenchError
├── RequestError        the request cannot be met; nothing was started            (exit code 2)
│   └── UnknownName     a name that does not exist, with the nearest one that does
├── OutOfOrder          a program called train_bench in an order that no log has  (exit code 1)
├── LaunchError         the processes of a run could not be started or died       (exit code 1)
├── Interrupted         the user ended a campaign; what is finished stays         (exit code 1)
├── WriteError          a result could not be written; finished runs stay readable (exit code 1)
└── LogError            a result cannot be read at all                            (exit code 1)

Raised anywhere, caught in `cli.py` alone. The text is one sentence or two: what was wrong, the value
seen, what is allowed, the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TrainBenchError(Exception):
    """Root of all expected errors."""

    exit_code = 1


class RequestError(TrainBenchError):
    """The request is wrong; no process was started."""

    exit_code = 2


class UnknownName(RequestError):
    """A name that is not among the known ones."""

    def __init__(self, *, what: str, name: str, known: Iterable[str], hint: str | None = None) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        if hint is None:
            hint = f" Did you mean '{near[0]}'?" if near else ""
        super().__init__(f"There is no {what} '{name}'.{hint} Known: {', '.join(names) or 'none'}.")


class LaunchError(TrainBenchError):
    """A run could not be started, or its processes died."""


class OutOfOrder(TrainBenchError):
    """A call of a run that is not due yet, or no longer."""


class Interrupted(TrainBenchError):
    """The user ended a campaign, and a sweep with it."""


class WriteError(TrainBenchError):
    """A result could not be written."""


class LogError(TrainBenchError):
    """A result cannot be read."""
