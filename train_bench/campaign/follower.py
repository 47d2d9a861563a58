"""Follower of the log of a run while the run goes on."""

from __future__ import annotations

import os
from pathlib import Path

from train_bench.core import files
from train_bench.core.event import Event
from train_bench.logs.log import LARGEST_BYTES, LINE_END, parse_line
from train_bench.observers.observer import Observer


class Follower:
    """Reader of a growing log; a line counts once it is complete. `whole` is true once the log has its end,
    `unreadable` the reason that it is no log, as a sentence."""

    def __init__(self, path: Path) -> None:
        self.whole = False
        self.unreadable: str | None = None
        self._path = path
        self._size = -1
        self._offset = 0
        self._line = 0

    def pass_on(self, observer: Observer) -> None:
        """Pass new events to `observer`."""
        for event in self._new_events():
            observer.event(event)

    def _new_events(self) -> list[Event]:
        try:
            with files.opened(self._path) as file:
                size = os.fstat(file.fileno()).st_size
                if size == self._size:  # half a line, however long, is read once
                    return []
                self._size = size
                file.seek(self._offset)
                new = file.read(LARGEST_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            why = error.strerror or error
            self.unreadable = (
                f"its log {self._path} cannot be read ({why}); a program writes its lines into a regular file"
            )
            return []
        if size < self._offset:
            self.unreadable = f"its log {self._path} has become shorter; a program only adds lines to it"
        if self._offset + len(new) >= LARGEST_BYTES:
            self.unreadable = f"its log {self._path} has more than {LARGEST_BYTES} bytes"
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        events = []
        for text in LINE_END.split(whole.decode("utf-8", errors="replace"))[:-1]:
            self._line += 1
            event = parse_line(text, self._line)
            if isinstance(event, Event):
                events.append(event)
                self.whole |= event.key == "run_stop"
        return events
