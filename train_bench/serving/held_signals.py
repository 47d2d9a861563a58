"""Signals during a LoadGen test: an exception that leaves a callback of LoadGen ends the process without a sentence."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def held_signals(note: Callable[[BaseException], None]) -> Iterator[None]:
    """Context in which `note` gets the exceptions that handlers of signals raise, Ctrl-C's among them. A handler runs
    wherever the main thread is, between any two of its instructions, so that no `try` of a callback is around it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    handled = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number, handler in handled.items():
            signal.signal(number, _held(handler, note))
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


def _held(
    handler: Callable[[int, FrameType | None], object], note: Callable[[BaseException], None]
) -> Callable[[int, FrameType | None], None]:
    def held(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            note(error)

    return held
