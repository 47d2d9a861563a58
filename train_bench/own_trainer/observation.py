"""Observation of a user's program from outside: its life, its processor time, what it read, wrote, shared and left
running, the data files that were opened, and who wrote its log. Written to `ranks/run_<run>/observed_<rank>.json` after
the program has ended, and from there into the record of the attempt; nothing of it is read from the log."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.job import Job
from train_bench.errors import LogError
from train_bench.own_trainer.data_watch import DataWatch
from train_bench.own_trainer.evaluator import Evaluator
from train_bench.own_trainer.program_log import TOKEN
from train_bench.run import processors, system

OBSERVED = "observed"
"""Key in the record of an attempt."""

EVALUATOR = "evaluator"
"""Key of what the evaluator of the run has found, if it has one."""

SUMS = (
    "seconds",
    "processor_seconds",
    "clock_processor_seconds",
    "read_bytes",
    "written_bytes",
    "left_processes",
)
"""Fields that add up over the starts of an attempt; null where the system does not tell."""

COUNTERS = Path("/proc/self/io")
"""Bytes that calls of this process read and wrote, and those of processes that it has waited for (Linux)."""

SHARED_MEMORY = "/dev/shm"

RUN_START = b'"run_start"'

BLOCK_BYTES = 2**20
"""Bytes of the log that are read at a time; a longer line is passed over."""


class Observation:
    """Observation of one program by this process, from its construction on. `poll` is called a few times a second
    while it runs. `path` is the file that gets it; what it holds before is of an earlier start in the same attempt."""

    def __init__(
        self,
        path: Path,
        log: Path,
        data: DataWatch | None,
        now: Callable[[], float] = time.time,
        evaluator: Evaluator | None = None,
    ) -> None:
        self._evaluator = evaluator
        self._path = path
        self._earlier = _earlier(path)
        self._log = log
        self._data = data
        self._now = now
        self._began = now(), time.monotonic()
        self._at_start = self._processor_seconds()
        self._before_clock = self._at_start
        self._read_and_written = _bytes_of_calls()
        self._shared_before = self._shared = _shared_bytes()
        self._offset = 0
        self.clock_runs = False

    def poll(self) -> None:
        """Take the largest use of shared memory, and the processor time until the log has `run_start`, so that the last
        look before it is known."""
        self._shared = max(self._shared, _shared_bytes())
        if self.clock_runs:
            return
        seen = self._processor_seconds()
        self.clock_runs = self._has_run_start()
        if not self.clock_runs:
            self._before_clock = seen

    def write(self, *, wrote_log: bool, left: int) -> None:
        """Write the file, once the program has ended and `left` processes of it were ended. Whatever it may have put
        there is replaced."""
        now = self._as_json(wrote_log=wrote_log) | {"left_processes": left}
        before = self._earlier
        if before is not None:
            now |= {"started_ms": before["started_ms"], "wrote_log": wrote_log and before["wrote_log"]}
            for name in SUMS:
                known = None not in (before[name], now[name])
                now[name] = round(before[name] + now[name], 3) if known else None
            now["shared_memory_bytes"] = max(before["shared_memory_bytes"], now["shared_memory_bytes"])
        files.write_json(self._path, now)

    def _as_json(self, *, wrote_log: bool) -> dict[str, Any]:
        """Once the program has ended and its processes were waited for. `clock_processor_seconds` is an upper bound:
        it begins with the last look before `run_start`."""
        ended, seconds = self._now(), time.monotonic() - self._began[1]
        total, before = self._processor_seconds(), self._before_clock
        return {
            "wrote_log": wrote_log,
            "started_ms": round(self._began[0] * 1000),
            "ended_ms": round(ended * 1000),
            "seconds": round(seconds, 3),
            "processor_seconds": _between(self._at_start, total),
            "clock_processor_seconds": _between(before, total),
            **dict(zip(("read_bytes", "written_bytes"), self._bytes(), strict=True)),
            "shared_memory_bytes": self._shared - self._shared_before,
            "accelerators": len(system.describe()["accelerators"]),
            "data": None if self._data is None else self._data.in_all(),
            **({} if self._evaluator is None else {EVALUATOR: self._evaluator.as_json()}),
        }

    def _has_run_start(self) -> bool:
        """Reads what the log has grown by."""
        with contextlib.suppress(OSError), files.opened(self._log) as file:
            file.seek(self._offset)
            new = file.read(BLOCK_BYTES)
            whole = new if len(new) == BLOCK_BYTES and b"\n" not in new else new[: new.rfind(b"\n") + 1]
            self._offset += len(whole)
            return any(TOKEN in line and RUN_START in line for line in whole.splitlines())
        return False

    def _bytes(self) -> tuple[int | None, int | None]:
        """Bytes read and written by the program, and by this process for it."""
        before, now = self._read_and_written, _bytes_of_calls()
        return (None, None) if before is None or now is None else (now[0] - before[0], now[1] - before[1])

    def _processor_seconds(self) -> float | None:
        """Without that of the evaluator, which is a child of this process, too."""
        seconds = processors.processor_seconds()
        of_evaluator = 0.0 if self._evaluator is None else self._evaluator.processor_seconds
        return None if seconds is None else seconds - of_evaluator


def read(job: Job) -> dict[str, Any]:
    """Observations of the ranks of a command, as the record of an attempt has it: that of rank 0, and the processor
    time, bytes and leftover processes of all of them. Empty for a reference, and where one has written nothing."""
    if job.command is None:
        return {}
    try:
        ranks = [files.read_json(path_of(job, rank)) for rank in range(job.world_size)]
        first = dict(ranks[0])
        for name in SUMS[1:]:
            taken = [one[name] for one in ranks]
            first[name] = None if None in taken else round(sum(taken), 3)
    except (LogError, *files.INVALID_CONTENT):
        return {OBSERVED: None}
    return {OBSERVED: first}


def path_of(job: Job, rank: int) -> Path:
    """The file of a rank."""
    return job.ranks_folder / f"observed_{rank}.json"


def _earlier(path: Path) -> dict[str, Any] | None:
    """Content of an earlier start; None where it has written none, or the program wrote something else."""
    found = files.read_object(path)
    valid = (
        type(found.get("started_ms")) is int
        and type(found.get("wrote_log")) is bool
        and type(found.get("shared_memory_bytes")) is int
        and all(isinstance(found.get(name, ""), (float, int, type(None))) for name in SUMS)
    )
    return found if valid else None


def _between(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round(max(0.0, after - before), 3)


def _bytes_of_calls() -> tuple[int, int] | None:
    """Bytes that `COUNTERS` says."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        counted = dict(line.split(": ") for line in COUNTERS.read_text().splitlines())
        return int(counted["rchar"]), int(counted["wchar"])
    return None


def _shared_bytes() -> int:
    """Bytes of shared memory that are in use on this host."""
    with contextlib.suppress(OSError):
        found = os.statvfs(SHARED_MEMORY)
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0
