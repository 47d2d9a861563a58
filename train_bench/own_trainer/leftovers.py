"""Leftover processes of a user's program. Each has the variable that names the program's job in its environment
(Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from train_bench.core.job import Job
from train_bench.own_trainer.job import VARIABLE

PROC = Path("/proc")
PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS, REAP_SECONDS = 5.0, 0.01


def end(job: Job) -> None:
    """End processes that the command of a job started on this host and whose own terminator was killed."""
    if job.command is not None:
        kill(str(job.ranks_folder / "job_"))


def kill(job_files: str) -> None:
    """Kill every process of this user whose job is a file that begins with `job_files`, but this one."""
    for number in running(job_files):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)


def running(job_files: str) -> Iterator[int]:
    """Processes of this user whose job is a file that begins with `job_files`, but this one."""
    wanted = f"{VARIABLE}={job_files}".encode()
    for folder in PROC.glob("[0-9]*"):
        if int(folder.name) != os.getpid():
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended, or belongs to another user
                continue
            if any(variable.startswith(wanted) for variable in variables):
                yield int(folder.name)


def adopt(*, adopting: bool = True) -> None:
    """Become the parent of processes that outlive theirs, or no longer (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopting))


@contextlib.contextmanager
def ended_afterwards() -> Iterator[None]:
    """Kill the processes that are children of this one at the end and were not before, whatever their session and
    environment (Linux)."""
    before = {*(children() or ())}
    adopt()
    try:
        yield
    finally:
        until = time.monotonic() + GRACE_SECONDS
        while (new := {*(children() or ())} - before) and time.monotonic() < until:
            for number in new:
                with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                    os.kill(number, signal.SIGKILL)
                    os.waitpid(number, os.WNOHANG)
            time.sleep(REAP_SECONDS)
        adopt(adopting=False)


def children() -> list[int] | None:
    """Children of this process; None where the system does not list them."""
    tasks = list(PROC.glob("self/task/*/children"))
    if not tasks:
        return None
    found: list[int] = []
    for task in tasks:
        with contextlib.suppress(OSError):  # the thread has ended
            found += [int(number) for number in task.read_text().split()]
    return found
