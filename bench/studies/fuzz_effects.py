"""Effects of a command outside a sandbox folder, for `fuzz.py`: files, processes, sockets, code, environment.

Python's audit events tell what is opened to be written, moved, removed, started and connected to, before it is done.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGED = {
    **{
        f"os.{name}": 1
        for name in ("remove", "mkdir", "rmdir", "chmod", "chown", "truncate", "setxattr", "removexattr")
    },
    "os.rename": 2,
    "os.link": 2,
    "shutil.rmtree": 1,
}
"""Number of paths, at the beginning of the arguments, that an event changes."""
STARTED = (
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "os.startfile",
    "pty.spawn",
)
CONNECTED = ("socket.connect", "socket.sendto", "socket.bind", "socket.getaddrinfo")
PROGRAMS = frozenset(
    {"git", "lscpu", "nvidia-smi", "ssh-keygen", "cat", "sinfo", "scontrol", "sysctl", "ldconfig", "uname"}
)
"""Programs that may be started: they read, and their names do not come from what is read."""
OF_IMPORTS = frozenset({"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})
"""Variables that scikit-learn sets when it is imported, for OpenMP libraries that are loaded later."""
DEVICES = ("/dev/null", "/dev/tty", "/dev/shm", "/proc/self", "/proc/thread-self")


class Effects:
    """Watches this process from its construction on; `during` gives what happened outside of `folder` meanwhile."""

    def __init__(self, folder: Path, *further: Path) -> None:
        self._allowed = tuple(f"{os.path.realpath(path)}/" for path in (folder, *further))
        self._found: list[str] | None = None
        self._thread = 0
        sys.addaudithook(self._heard)

    @contextmanager
    def during(self) -> Iterator[list[str]]:
        """Sentences on effects, whole when the block has ended."""
        found: list[str] = []
        before = _state()
        self._found = found
        try:
            yield found
        finally:
            self._found = None
            after = _state()
            found += [
                f"{what} changed: {_difference(before[what], after[what])}"
                for what in before
                if before[what] != after[what]
            ]

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        found = self._found
        if found is None:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITES and not isinstance(path, int):
                self._of_path(found, event, path)
        elif event in CHANGED:
            for path in arguments[: CHANGED[event]]:
                self._of_path(found, event, path)
        elif event == "os.symlink":
            self._of_path(found, event, arguments[1])
        elif event in STARTED:
            words = arguments[1] if event == "subprocess.Popen" else arguments[0]
            first = words[0] if isinstance(words, (list, tuple)) and words else words
            name = (
                Path(os.fsdecode(first)).name if isinstance(first, (str, bytes, os.PathLike)) else repr(first)
            )
            if name not in PROGRAMS and first != sys.executable:
                found.append(f"{event} {str(words)[:100]}")
        elif event in CONNECTED:
            address = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
            if not str(address).startswith(("('127.0.0.1'", "127.0.0.1")):
                found.append(f"{event} {address!s:.80}")
        elif event == "pickle.find_class":
            found.append(f"{event} {arguments!s:.80}")

    def _of_path(self, found: list[str], event: str, path: Any) -> None:
        if path is None or isinstance(path, int):
            return
        name = Path(os.fsdecode(path))
        real = str(name.resolve() if event == "open" else name.parent.resolve() / name.name)
        if not (real.startswith((*self._allowed, *DEVICES)) or f"{real}/" in self._allowed):
            found.append(f"{event} {real[:100]}")


def _state() -> dict[str, Any]:
    return {
        "environment": {name: value for name, value in os.environ.items() if name not in OF_IMPORTS},
        "working folder": str(Path.cwd()),
        "processes": _children(),
        "threads": {thread.name for thread in threading.enumerate()},
        "umask": _umask(),
    }


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, dict):
        return ", ".join(
            sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        )
    return str(sorted(after - before)) if isinstance(before, set) else f"{before} to {after}"


def _children() -> set[str]:
    text = Path("/proc/self/task", str(os.getpid()), "children")
    return set(text.read_text().split()) if text.exists() else set()


def _umask() -> int:
    known = os.umask(0o022)
    os.umask(known)
    return known
