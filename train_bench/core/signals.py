"""Signals that ask a process to end: SIGTERM, a hangup (SSH), and those that Slurm sends before a time limit."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

Handler = Callable[[int, FrameType | None], None]


def handle_ending(handler: Handler) -> None:
    """Call `handler` at each of these signals that still has its default action: `nohup` ignores hangups, and a program
    may use SIGUSR1 itself."""
    for number in ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, handler)
