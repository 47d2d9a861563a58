"""Errors for users, as a tree.

TrainBenchError
├── RequestError        the request cannot be met; nothing was started            (exit code 2)
│   └── UnknownName     a name that does not exist, with the nearest one that does
├── OutOfOrder          a program called train_bench in an order that no log has  (exit code 1)
├── LaunchError         the processes of a run could not be started or died       (exit code 1)
├── Interrupted         the user ended a campaign; what is finished stays         (exit code 1)
│   └── Resumable       ... at a checkpoint, or as another host was interrupted   (exit code 75)
├── WriteError          a result could not be written; finished runs stay readable (exit code 1)
└── LogError            a result cannot be read at all                            (exit code 1)
    └── NoLogs          a folder has no logs of training

OutputClosed, a KeyboardInterrupt: nobody reads what is printed                   (exit code 141)
Preempted, a KeyboardInterrupt: a run was warned of its end; it can be continued  (exit code 75)

Raised anywhere, caught in `cli.py` alone. The text is one sentence or two: what was wrong, the value
seen, what is allowed, the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class TrainBenchError(Exception):
    """Root of all expected errors."""

    exit_code = 1


class RequestError(TrainBenchError):
    """The request is wrong; no process was started."""

    exit_code = 2


NEAREST, ALL_KNOWN = 3, 6
"""Known names that an error shows: all where they are few, else the nearest ones."""

LISTS = {"benchmark": "train-bench list", "launcher": "train-bench list", "verb": "train-bench --help"}
"""Commands that print all names of a kind."""


class UnknownName(RequestError):
    """A name that is not among the known ones. `more` is the command that prints these; `hint` replaces the guess at
    what was meant."""

    def __init__(
        self, *, what: str, name: str, known: Iterable[str], more: str | None = None, hint: str | None = None
    ) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        if hint is None:
            hint = f" Did you mean '{near[0]}'?" if near else ""
        shown = known_names(name, names, more or LISTS.get(what))
        super().__init__(f"There is no {what} '{name}'.{hint} {shown}")


def known_names(name: str, names: Sequence[str], more: str | None = None) -> str:
    """Sentence with the known names: all of them if they are few or no command prints them, else the nearest ones and
    `more`, that command."""
    if more is None or len(names) <= ALL_KNOWN:
        return f"Known: {', '.join(names) or 'none'}."
    near = difflib.get_close_matches(name, names, n=NEAREST, cutoff=0.0)
    return f"Nearest: {', '.join(near)} ({len(names) - len(near)} more: {more})."


class LaunchError(TrainBenchError):
    """A run could not be started, or its processes died."""


class OutOfOrder(TrainBenchError):
    """A call of a run that is not due yet, or no longer."""


class Interrupted(TrainBenchError):
    """The user ended a campaign, and a sweep with it."""


class Resumable(Interrupted):
    """The same, in a run that has written a checkpoint, or because another host of it was interrupted: little is lost,
    and the caller may try again."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h


class Preempted(KeyboardInterrupt):
    """The processes of a run were warned of their end, and have written a checkpoint."""


class OutputClosed(KeyboardInterrupt):
    """The reader of the output has closed it (`| head`), which ends a program as Ctrl-C does; a campaign can be
    resumed."""


class WriteError(TrainBenchError):
    """A result could not be written."""


class LogError(TrainBenchError):
    """A result cannot be read."""


class NoLogs(LogError):
    """A folder has no logs of training."""
