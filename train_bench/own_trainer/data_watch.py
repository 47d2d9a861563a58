"""Data access before the clock: files of a data set opened on this host before `run_start` (Linux, inotify).

The rules allow no access to the data before `run_start`, a common mistake. Any open on this host is detected, in any
language, through any library, by any process, and by another name of the same file (links, bind mounts); reads over the
network, of an earlier copy, or through a file that was open before are not. The kernel does not date an opening: it has
the time at which it was noticed, which is later where processors are busy, or its place before the mark that a program
leaves at its `run_start`, which is exact.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IN_ATTRIB = 0x4
IN_OPEN = 0x20
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_ISDIR = 0x40000000
IN_Q_OVERFLOW = 0x4000
EVENT = struct.Struct("iIII")

MOST_WATCHES = 10_000
"""Folders, and files with several names. More are not watched: a user may have some ten thousand watches on many
systems."""

PROC = Path("/proc")

KEPT = 1_000
"""Files whose first opening is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Opened files of `folder` up to a time: the number of `files`, and the `first` of them; or why nothing can be
    known."""

    folder: str
    files: int
    first: tuple[str, ...]
    unknown: str | None = None


class DataWatch:
    """Watch of a folder from its construction on, until `close`. What is opened before `mark`, a file, gets other
    times (`os.utime`) is before `run_start` however late it is noticed."""

    def __init__(self, folder: Path, mark: Path | None = None) -> None:
        self._folder = folder
        self._mark = mark
        self._mark_number = -1
        self._before_mark: int | None = None
        self._opened: dict[str, int] = {}
        self._overflowed = False
        self._grown = False
        self._missing = not self._folder.exists()
        self._names: dict[int, Path] = {}
        self._descriptor = -1
        self._unknown = self._begin()
        self._held = 0 if self._unknown is not None else sum(1 for _ in _holders(self._folder.resolve()))
        self._end, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        if self._unknown is None:
            self._thread.start()

    def until(self, time_ms: float) -> Opened:
        """Files opened before the mark, or before `time_ms`, in milliseconds since the epoch."""
        marked = self._before_mark or 0
        early = [
            name
            for place, (name, opened_ms) in enumerate(self._opened.items())
            if place < marked or opened_ms < time_ms
        ]
        unknown = "too many files were opened at once" if self._overflowed else self._unknown
        return Opened(folder=str(self._folder), files=len(early), first=tuple(early[:3]), unknown=unknown)

    def in_all(self) -> dict[str, Any]:
        """Findings: True if the folder was `watched`; the number of its files that were `opened`, null where some may
        have been missed (`unknown` says why); and the number of other processes of this user that had some open when
        the watch began (`held`)."""
        unknown = self.until(0).unknown
        watched = unknown is None
        if self._grown:
            unknown = unknown or f"folders were made in {self._folder} meanwhile"
        elif self._missing:
            unknown = f"{self._folder} was made meanwhile" if self._folder.exists() else None
        return {
            "watched": watched,
            "opened": len(self._opened) if unknown is None else None,
            "unknown": unknown,
            "held": self._held,
        }

    def close(self) -> None:
        """Stop watching."""
        os.write(self._wake, b".")
        if self._thread.is_alive():
            self._thread.join()
        for descriptor in {self._descriptor, self._end, self._wake} - {-1}:
            os.close(descriptor)

    def _begin(self) -> str | None:
        """Set the watches; the reason that they cannot be set, as the end of a sentence, or None."""
        if sys.platform != "linux":
            return "only Linux tells who opens files"
        if not self._folder.is_dir():
            return f"there is no folder {self._folder}"
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            return f"this system watches no more folders ({os.strerror(ctypes.get_errno())})"
        if self._mark is not None:
            self._mark_number = libc.inotify_add_watch(self._descriptor, os.fsencode(self._mark), IN_ATTRIB)
        plain: list[Path] = []
        for at, _, names in os.walk(self._folder, followlinks=True):
            others = set(_with_other_names(Path(at), names))
            plain += (path for name in names if (path := Path(at, name)) not in others)
            for path in (Path(at), *others):
                if len(self._names) >= MOST_WATCHES:
                    return f"{self._folder} has more than {MOST_WATCHES} folders and links"
                if not self._add(libc, path):
                    return f"{path} cannot be watched ({os.strerror(ctypes.get_errno())})"
        if (
            len(self._names) + len(plain) <= MOST_WATCHES
        ):  # they may get another name, through which they are opened
            for path in plain:
                self._add(libc, path)
        return None

    def _add(self, libc: ctypes.CDLL, path: Path) -> bool:
        """Watch one folder or file; False if it cannot be watched."""
        mask = IN_OPEN | IN_CREATE | IN_MOVED_TO
        number = libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        if number >= 0:
            self._names[number] = path
        return bool(number >= 0)

    def _follow(self) -> None:
        while True:
            ready, _, _ = select.select([self._descriptor, self._end], [], [])
            now = time.time_ns() // 1_000_000
            if self._descriptor in ready:
                self._take(os.read(self._descriptor, 1 << 16), now)
            elif self._end in ready:
                return

    def _take(self, events: bytes, now: int) -> None:
        at = 0
        while at < len(events):
            number, mask, _, length = EVENT.unpack_from(events, at)
            if number == self._mark_number and mask & IN_ATTRIB and self._before_mark is None:
                self._before_mark = len(self._opened)
            name = os.fsdecode(events[at + EVENT.size : at + EVENT.size + length].rstrip(b"\0"))
            at += EVENT.size + length
            self._overflowed |= bool(mask & IN_Q_OVERFLOW)
            self._grown |= bool(mask & (IN_CREATE | IN_MOVED_TO) and mask & IN_ISDIR)
            if mask & IN_OPEN and not mask & IN_ISDIR and len(self._opened) < KEPT:
                path = self._names.get(number, self._folder) / name
                self._opened.setdefault(os.path.relpath(path, self._folder), now)


def _with_other_names(folder: Path, names: list[str]) -> Iterator[Path]:
    """Files that may be opened without their folder being looked at: symbolic links, and files with hard links."""
    for name in names:
        path = folder / name
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_nlink > 1:
                yield path


def _holders(folder: Path) -> Iterator[int]:
    """Other processes of this user that have a file below `folder` open or mapped."""
    below = os.fsencode(folder) + b"/"
    for process in PROC.glob("[0-9]*"):
        if int(process.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                opened = (os.fsencode(one.readlink()) for one in (process / "fd").iterdir())
                if (
                    any(name.startswith(below) for name in opened)
                    or b" " + below in (process / "maps").read_bytes()
                ):
                    yield int(process.name)
