"""Preemption of a run: the warning that its processes will be ended soon, a file in the folder of its ranks. The first
that is warned writes it, a rank or the launching process on any host, and rank 0 reads it between steps."""

from __future__ import annotations

import contextlib
from pathlib import Path

from train_bench.core.job import Job


def _path(job: Job) -> Path:
    return job.ranks_folder / "warning.txt"


def warn(job: Job, cause: str) -> None:
    """Warn the ranks of `job` of their end. The first warning of a start counts."""
    with contextlib.suppress(OSError), _path(job).open("x", encoding="utf-8") as file:
        file.write(cause)


def begin_grace(job: Job, cause: str) -> float:
    """Warn ranks that write checkpoints; the seconds for which they may go on. Others have none."""
    if job.checkpoint_seconds is None:
        return 0.0
    warn(job, cause)
    return job.grace_seconds


def warning(job: Job) -> str | None:
    """Cause of the warning; None without one."""
    try:
        return _path(job).read_text(encoding="utf-8")[:200].strip() or "a signal"
    except (OSError, UnicodeDecodeError):
        return None
