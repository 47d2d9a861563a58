"""Log of a user's program, after its end: its events, and a `run_stop` if it lacks one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from train_bench.core import files
from train_bench.errors import LaunchError
from train_bench.run.clock import ABORTED, SUCCESS

TOKEN = b":::MLLOG "

LARGEST_BYTES = 2**28
"""Size limit of a log; the judge reads none that is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLog:
    """Summary of a log: its number of `lines`, of `run_start` and `run_stop` lines (`starts`, `stops`), the status of
    the last `run_stop`, and the times of the first `run_start` and of the last line in milliseconds."""

    path: Path
    lines: int = 0
    starts: int = 0
    stops: int = 0
    status: str | None = None
    last_ms: int = 0
    started_ms: int | None = None

    @classmethod
    def of(cls, path: Path) -> ProgramLog:
        """Read the log line by line; a missing log is empty."""
        counts = {"run_start": 0, "run_stop": 0}
        lines, status, last_ms, started_ms = 0, None, 0, None
        try:
            with files.opened(path) as file:
                _refuse_size(path, os.fstat(file.fileno()).st_size)
                for raw in file:
                    event = _event(raw)
                    if event is None:
                        continue
                    lines += 1
                    last_ms = int(event["time_ms"])
                    if event["key"] in counts:
                        counts[event["key"]] += 1
                    if event["key"] == "run_start" and started_ms is None:
                        started_ms = last_ms
                    if event["key"] == "run_stop":
                        status = event["metadata"].get("status")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise not_a_log(path, error) from error
        starts, stops = counts.values()
        return cls(
            path=path,
            lines=lines,
            starts=starts,
            stops=stops,
            status=status,
            last_ms=last_ms,
            started_ms=started_ms,
        )

    @property
    def is_result(self) -> bool:
        """True if exactly one run has reached its target and logged it."""
        return self.starts == self.stops == 1 and self.status == SUCCESS

    def end(self) -> None:
        """Add `run_stop` with the status `aborted` to a log without one whose program has ended. Replaces an incomplete
        line at its end."""
        if not self.starts or self.stops:
            return
        self._append("INTERVAL_END", "run_stop", None, {"status": ABORTED})

    def add(self, key: str, value: Any) -> None:
        """Add observations of the run from outside. Replaces an incomplete line at the end of the log."""
        self._append("POINT_IN_TIME", key, value, {})

    def cut_half_line(self) -> None:
        """Remove an incomplete line that a killed writer left."""
        with _opened(self.path) as file:
            file.truncate(_whole_bytes(file))

    def _append(self, kind: str, key: str, value: Any, metadata: dict[str, Any]) -> None:
        line = {
            "namespace": "",
            "time_ms": max(self.last_ms, time.time_ns() // 1_000_000),
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": {**metadata, "file": "train_bench/own_trainer/program_log.py", "lineno": 0},
        }
        self.cut_half_line()
        with _opened(self.path) as file:
            file.write(TOKEN + json.dumps(line).encode() + b"\n")


def digest_of_events(path: Path) -> str | None:
    """The sha256 of the lines of a log that are events; None if it cannot be read."""
    seen = hashlib.sha256()
    try:
        with files.opened(path) as file:
            for raw in file:
                if TOKEN in raw:
                    seen.update(raw)
    except OSError:
        return None
    return seen.hexdigest()


def not_a_log(path: Path, error: OSError) -> LaunchError:
    """Error message for a log that cannot be opened."""
    return LaunchError(
        f"its log {path} cannot be read ({error.strerror or error}); a program writes its lines into a regular file"
    )


def _refuse_size(path: Path, size: int) -> None:
    if size > LARGEST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST_BYTES} bytes", str(path))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with files.opened_to_append(path) as file:
            yield file
    except OSError as error:
        raise not_a_log(path, error) from error


def _whole_bytes(file: BinaryIO) -> int:
    """Number of bytes of a file in complete lines."""
    file.seek(0)
    return sum(len(raw) for raw in file if raw.endswith(b"\n"))


def _event(raw: bytes) -> dict[str, Any] | None:
    """The object of a complete line of mllog."""
    if not raw.endswith(b"\n"):
        return None
    try:
        found = json.loads(raw.rpartition(TOKEN)[2]) if TOKEN in raw else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    key, time_ms, metadata = (found.get(name) for name in ("key", "time_ms", "metadata"))
    is_time = isinstance(time_ms, (int, float)) and abs(time_ms) < 1e18
    return found if is_time and isinstance(key, str) and isinstance(metadata, dict) else None
