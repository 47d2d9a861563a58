"""Locks for one process at a time. The kernel keeps them, so that a process that was killed holds nothing.

held    refuses a second process: a file with the holder's process number and its machine, empty afterwards; where a
        file system keeps no locks between hosts, the content of the file counts
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
    """Hold the lock `path` for `what`, the subject of a sentence (`Run 1 (2 of 5) in DIR`).

    A stale lock of a dead process of this machine, in whichever container it ran, is taken over. Raises `RequestError`
    if a process of this machine, or one of another, holds it; nothing was changed then.
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
        except OSError as error:
            sys.stderr.write(
                f"warning: {lock} cannot be locked ({error.strerror}): its file system keeps no locks. Let no other "
                f"process prepare {folder} at the same time.\n"
            )
        yield


def is_held(path: Path) -> bool:
    """True if a process holds the lock now, by its content; one of another machine is believed."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        holder = _holder(file)
        if holder and _of_this_machine(holder) and not _has_our_numbers(holder):
            return not _is_free(file)
    finally:
        os.close(file)
    return bool(holder) and (not _of_this_machine(holder) or _alive(holder))


def _take(file: int, path: Path, what: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        taken, known = False, True
    except BlockingIOError:
        taken = known = True
    except OSError:  # a file system without locks: what the file says has to do
        holder = _holder(file)
        taken, known = _alive(holder), not holder or _has_our_numbers(holder)
    holder = _holder(file)
    if taken or (holder and not (known and _of_this_machine(holder))):
        who = f"process {holder.get('pid', '?')} on {holder.get('host', socket.gethostname())}"
        step = "wait for it, or end it" if taken else f"if it no longer exists, remove {path}"
        raise RequestError(f"{what} is in use by {who}; {step}. Nothing was changed.")
    os.ftruncate(file, 0)
    with contextlib.suppress(OSError):  # on a full disk the kernel holds the lock all the same
        os.pwrite(
            file, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), **_machine()}).encode(), 0
        )


def _machine() -> dict[str, str]:
    """This start of this machine, which its containers share, and the process numbers that count here (Linux). The
    name of a container is another one after each start."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return {"boot": boot, "numbers": str(Path("/proc/self/ns/pid").readlink())}
    except (OSError, ValueError):
        return {}


def _of_this_machine(holder: dict[str, Any]) -> bool:
    """True if the kernel that keeps our locks keeps those of the holder, too: by its start, or by name, as of a machine
    that has been started again."""
    boot, here = _machine().get("boot"), socket.gethostname()
    return (boot is not None and holder.get("boot") == boot) or bool(holder.get("host", here) == here)


def _has_our_numbers(holder: dict[str, Any]) -> bool:
    """True if the holder's process number is one of ours: the same start of the machine, and the same container."""
    ours = _machine()
    return _of_this_machine(holder) and all(holder.get(name, own) == own for name, own in ours.items())


def _is_free(file: int) -> bool:
    """True if the kernel says that nobody holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _holder(file: int) -> dict[str, Any]:
    """Content of the lock file; empty if unreadable."""
    try:
        holder = json.loads(os.pread(file, 1000, 0))
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _alive(holder: dict[str, Any]) -> bool:
    pid = holder.get("pid")
    if not _has_our_numbers(holder) or not isinstance(pid, int) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
