"""Timers of the calling thread, and of threads that it starts, without the slack that Linux adds to them."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

PR_SET_TIMERSLACK, PR_GET_TIMERSLACK = 29, 30


@contextlib.contextmanager
def exact_timers() -> Iterator[None]:
    """Context in which sleeps end within a nanosecond of slack in place of 50 microseconds: LoadGen's Server sleeps
    until a query is due, and the query's latency counts from then. Elsewhere than on Linux nothing changes."""
    before = slack_ns() if sys.platform == "linux" else -1
    if before < 0:
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(before), 0, 0, 0)


def slack_ns() -> int:
    """Timer slack of this thread in nanoseconds, negative where the kernel refuses to tell; Linux only."""
    return int(ctypes.CDLL(None).prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0))
