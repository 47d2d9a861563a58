"""Processes that the kernel ends with their parent (Linux)."""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1

# Found here, and not in a new process: where the parent has threads, one of them may have held the loader's lock when
# the process was made, which nobody would release there.
_PRCTL = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent dies."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, int(number))


def ending_with_parent(number: int) -> Callable[[], None]:
    """`preexec_fn` of a program that is to get this signal when its parent dies."""
    return functools.partial(end_with_parent, number)
