"""State of a rank for its parent, in files: arrival, last action, output. Also ties its life to the parent's."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from train_bench.core import preemption
from train_bench.core.job import Job
from train_bench.core.signals import handle_ending
from train_bench.run import flight_recorder

PR_SET_CHILD_SUBREAPER = 36
SECONDS_BEHIND_A_KILLED_RANK = 1.5


def end_process(exit_code: int = 0) -> NoReturn:
    """End this process without the interpreter's shutdown, in which threads and static objects of native libraries
    (gloo, DeepSpeed) may abort a process whose work is done. The only exit of ranks."""
    flush()
    os._exit(exit_code)


def flush() -> None:
    """Flush the output of this process."""
    sys.stdout.flush()
    sys.stderr.flush()


def arrive(job: Job) -> Path:
    """Tell the parent that this process exists, so that it can report how many arrived. Returns the path of that
    file."""
    folder = job.ranks_folder / "arrived"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{platform.node()}_{os.getpid()}"
    path.touch()
    return path


class RankState:
    """Current action of this rank, for post-mortems; its output goes to files from here on.

    when_warned  called at the first signal that asks this process to end, which is then a warning for all ranks: they
                 leave between two steps. None: it ends this process
    """

    def __init__(self, job: Job, rank: int) -> None:
        self.when_warned: Callable[[], None] | None = None
        self._job, self._rank = job, rank
        self._others = job.world_size > 1
        self._finished = False
        job.ranks_folder.mkdir(parents=True, exist_ok=True)
        self._path = job.ranks_folder / f"rank_{rank}.json"
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            with (job.ranks_folder / f"rank_{rank}.{name}").open("ab") as file:
                os.dup2(file.fileno(), descriptor)
        signal.signal(signal.SIGTERM, self._terminated)
        handle_ending(self._terminated)
        self.write("running")

    def write(self, state: str, error: str | None = None) -> None:
        """Write the state. A failure stays: it may be that of another process which took this rank, too. So does a
        complete result, whatever happens afterwards."""
        if self._finished:
            return
        if state != "failed" and self._has_failed():
            return
        self._finished = state == "finished"
        record = {"state": state, "pid": os.getpid(), "host": os.uname().nodename, "error": error}
        self._path.write_text(json.dumps(record) + "\n", encoding="utf-8")

    def _has_failed(self) -> bool:
        try:
            return bool(json.loads(self._path.read_text(encoding="utf-8"))["state"] == "failed")
        except (OSError, ValueError, KeyError, TypeError):  # missing or incomplete
            return False

    def fail(self, error: str) -> None:
        """Record the error for the parent and end without waiting for ranks that may be stuck.

        Not at once where there are others: a launcher polls its ranks once a second, and is to find the
        one that was killed before those that failed for its absence.
        """
        print(error, file=sys.stderr, flush=True)  # noqa: T201
        self.write("failed", error)
        if self._others:
            time.sleep(SECONDS_BEHIND_A_KILLED_RANK)
        end_process(1)

    def _terminated(self, number: int, _frame: object) -> None:
        when_warned, self.when_warned = self.when_warned, None
        if when_warned is not None:
            preemption.warn(self._job, f"{signal.Signals(number).name} on {platform.node()}")
            when_warned()
            return
        flight_recorder.dump(self._job, self._rank)
        self.write("terminated")
        os._exit(128 + number)
