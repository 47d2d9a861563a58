"""Page caches: dropped before a run, or recorded as not dropped."""

from __future__ import annotations

import os
from pathlib import Path

from train_bench.core import shell_words
from train_bench.errors import LaunchError

DROP = Path("/proc/sys/vm/drop_caches")


def drop(*, wanted: bool, command: str | None = None) -> bool:
    """Drop the page cache, dentries and inodes of this host if configured, by `command` or as root. Returns whether
    they were dropped.

    A run that has to drop caches and cannot does not start: its result would claim a state of
    the machine that it was not in (rules, section "Start state of data").
    """
    if not wanted:
        return False
    os.sync()
    if command is not None:
        _by_command(command)
        return True
    try:
        DROP.write_text("3\n", encoding="ascii")
    except OSError as error:
        raise LaunchError(
            f"drop_caches=true was requested, but {DROP} cannot be written ({error.strerror}). Run as root on "
            f"Linux, or give drop_caches_command; rounds that allow it run with drop_caches=false."
        ) from error
    return True


def _by_command(command: str) -> None:
    """Run the user's program to its end."""
    words = shell_words.split(command, "drop_caches_command")
    try:
        _, status = os.waitpid(os.posix_spawnp(words[0], words, os.environ), 0)
    except OSError as error:
        raise LaunchError(
            f"drop_caches_command={command} could not be started ({error.strerror})."
        ) from error
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise LaunchError(
            f"drop_caches_command={command} ended with exit code {code}, so the page caches may not be dropped; try it "
            "in a shell on this host."
        )
