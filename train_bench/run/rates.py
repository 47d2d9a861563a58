"""Learning rates of a run, as the task of rank 0 reports them: all ranks take the same steps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from train_bench.task import Task


def told_by(task: Task) -> dict[str, Any] | None:
    """Value of the log line; None if the task does not report rates."""
    tell = getattr(task, "learning_rates", None)
    rates = None if tell is None else tell()
    return None if rates is None else asdict(rates)
