"""Page caches: dropped before a run, or recorded as not dropped."""

from __future__ import annotations

import os
from pathlib import Path

from train_bench.errors import LaunchError

DROP = Path("/proc/sys/vm/drop_caches")


def drop(*, wanted: bool) -> bool:
    """Drop the page cache, dentries and inodes of this host if configured. Returns whether they were dropped.

    A run that has to drop caches and cannot does not start: its result would claim a state of
    the machine that it was not in (rules, section "Start state of data").
    """
    if not wanted:
        return False
    os.sync()
    try:
        DROP.write_text("3\n", encoding="ascii")
    except OSError as error:
        raise LaunchError(
            f"drop_caches=true was requested, but {DROP} cannot be written ({error.strerror}). Run as root on "
            f"Linux; rounds that allow it run with drop_caches=false."
        ) from error
    return True
