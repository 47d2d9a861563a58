"""Folders of a measurement, in each tier; those whose process was killed are removed by the next one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "train_bench_startup_"


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, which is made too, for as long as the context lasts. This process holds a flock(2) on
    it, which tells it from a folder that was left."""
    parent.mkdir(parents=True, exist_ok=True)
    _remove_left(parent)
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
    descriptor = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        made = made.rename(parent / made.name[1:])  # whoever sees this name finds it locked
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(descriptor)


def _remove_left(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # somebody else's, or gone
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
