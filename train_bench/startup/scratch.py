"""Folders of a measurement, in each tier; those whose process was killed are removed by the next one.

Nothing is removed that a measurement did not mark as its own: the file `MARK` inside has the name of the folder, whose
end is random, and the start of the machine, and its process holds a lock on it. A folder without it, of another machine
or of somebody else is left alone, and so are all where the file system keeps no locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from train_bench.core import files

PREFIX = "train_bench_startup_"

MARK = ".train_bench_startup.json"
"""File that a measurement leaves in its folder."""

LARGEST_MARK_BYTES = 10_000


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, which is made too, for as long as the context lasts. This process holds a flock(2) on
    its mark, which tells it from a folder that was left."""
    parent.mkdir(parents=True, exist_ok=True)
    _remove_left(parent)
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
    descriptor = os.open(
        made / MARK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        final = parent / made.name[1:]
        os.write(descriptor, json.dumps({"folder": final.name, "machine": _this_start()}).encode())
        with contextlib.suppress(OSError):  # without locks it is removed by nobody else
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        made = made.rename(final)  # whoever sees this name finds it locked
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(descriptor)


def _remove_left(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(folder / MARK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # no measurement made it, or it is gone
            continue
        try:
            if _is_ours(folder, descriptor):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use, or a file system without locks
            pass
        finally:
            os.close(descriptor)


def _is_ours(folder: Path, descriptor: int) -> bool:
    """True for a folder that this user's measurement made on this machine, since it was started."""
    found = os.fstat(descriptor)
    if folder.is_symlink() or not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        return False
    try:
        marked = files.parse_json(os.pread(descriptor, LARGEST_MARK_BYTES, 0))
    except (ValueError, RecursionError):
        return False
    return bool(marked == {"folder": folder.name, "machine": _this_start()})


def _this_start() -> dict[str, str]:
    """Name of this host, and of this start of its kernel where that is known (Linux)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        boot = ""
    return {"host": socket.gethostname(), "boot": boot}
