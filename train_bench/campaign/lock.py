"""Locks for one process at a time. The kernel keeps them, so that a process that was killed holds nothing.

held    refuses a second process: a file with the holder's process number and its host, empty afterwards; where a file
        system keeps no locks between hosts, the content of the file counts
alone   lets a second process wait: for folders that the first one fills
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from train_bench.core.files import cannot_write
from train_bench.errors import RequestError


@contextlib.contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock `path` for `what`, the subject of a sentence (`Run 2 of 5 in DIR`).

    A stale lock of a dead process of this host is taken over. Raises `RequestError` if a process of this host, or
    one of another, holds it; nothing was changed then.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        _take(file, path, what)
        try:
            yield
        finally:
            os.ftruncate(file, 0)
    finally:
        os.close(file)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Prepare `folder` while no other process does; waits for one that already prepares it, and says so. If
    no lock can be written next to it, goes on without: nothing can be prepared there, and finished data can
    be used all the same."""
    lock = folder.with_name(f"{folder.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError:
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"waiting for another process that writes in {folder}\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_held(path: Path) -> bool:
    """True if a process holds the lock now, by its content; one of another host is believed."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        holder = _holder(file)
    finally:
        os.close(file)
    return bool(holder) and (holder.get("host") != socket.gethostname() or _alive(holder))


def _take(file: int, path: Path, what: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        taken = False
    except BlockingIOError:
        taken = True
    except OSError:  # a file system without locks: what the file says has to do
        taken = _alive(_holder(file))
    holder, here = _holder(file), socket.gethostname()
    if taken or holder.get("host", here) != here:
        who = f"process {holder.get('pid', '?')} on {holder.get('host', here)}"
        step = "wait for it, or end it" if taken else f"if it no longer exists, remove {path}"
        raise RequestError(f"{what} is in use by {who}; {step}. Nothing was changed.")
    os.ftruncate(file, 0)
    with contextlib.suppress(OSError):  # on a full disk the kernel holds the lock all the same
        os.pwrite(file, json.dumps({"pid": os.getpid(), "host": here}).encode(), 0)


def _holder(file: int) -> dict[str, Any]:
    """Content of the lock file; empty if unreadable."""
    try:
        holder = json.loads(os.pread(file, 1000, 0))
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _alive(holder: dict[str, Any]) -> bool:
    pid = holder.get("pid")
    if holder.get("host") != socket.gethostname() or not isinstance(pid, int) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
