"""Watchdog of a rank: detects a stall of its steps and collectives.

A rank that hangs, or that waits for one that does, cannot report it, because its main thread hangs. A second thread
counts the calls of the first to `Parallel`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from train_bench.parallel import Parallel

VERBS = tuple(name for name, value in vars(Parallel).items() if callable(value) and name[0] != "_")


class RankWatchdog:
    """Calls `stalled` with a sentence once this rank has begun and ended no method of `Parallel` for `limit_seconds`.
    While it does, `path` (if any) is touched as a heartbeat a few times per limit."""

    def __init__(self, limit_seconds: float, path: Path | None, stalled: Callable[[str], None]) -> None:
        self._limit = limit_seconds
        self._path = path
        self._stalled = stalled
        self._count = 0
        self._verb: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start the watchdog."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the watchdog."""
        self._over.set()
        self._thread.join()

    def hurry(self, limit_seconds: float) -> None:
        """Wait no longer than this from now on: the process is to end soon."""
        self._limit = min(self._limit, limit_seconds)

    def of(self, parallel: Parallel) -> Parallel:
        """`parallel` with counted calls."""
        return cast(Parallel, _Counted(parallel, self))

    def begin(self, verb: str) -> None:
        """Note that the main thread enters `verb`."""
        self._verb = verb
        self._count += 1

    def end(self) -> None:
        """Note that the main thread has left the method."""
        self._verb = None
        self._count += 1

    def _watch(self) -> None:
        seen, since = -1, time.monotonic()
        while not self._over.wait(min(5.0, self._limit / 20)):
            if self._count != seen:
                seen, since = self._count, time.monotonic()
                if self._path is not None:
                    with contextlib.suppress(OSError):  # a file system error must not end the watchdog
                        self._path.touch()
            elif time.monotonic() - since > self._limit:
                faulthandler.dump_traceback(sys.stderr)
                self._stalled(self._sentence())
                return

    def _sentence(self) -> str:
        verb = self._verb
        if verb is None:
            return f"hung: no step and no collective for {self._limit:g} s (stall_limit_seconds)"
        return f"waited in {verb} for {self._limit:g} s (stall_limit_seconds)"


class _Counted:
    """Proxy of a `Parallel` that counts its method calls; attributes are passed through."""

    def __init__(self, parallel: Parallel, watchdog: RankWatchdog) -> None:
        self._parallel = parallel
        for verb in VERBS:
            setattr(self, verb, _counted(verb, getattr(parallel, verb), watchdog))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parallel, name)


def _counted(verb: str, method: Callable[..., Any], watchdog: RankWatchdog) -> Callable[..., Any]:
    @functools.wraps(method)
    def counted(*args: Any, **kwargs: Any) -> Any:
        watchdog.begin(verb)
        try:
            return method(*args, **kwargs)
        finally:
            watchdog.end()

    return counted
