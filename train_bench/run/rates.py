"""With which learning rates a run has trained, as the task of rank 0 tells it: all ranks take the same steps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from train_bench.task import Task


def told_by(task: Task) -> dict[str, Any] | None:
    """The value of the line; None where the task does not tell."""
    tell = getattr(task, "learning_rates", None)
    told = None if tell is None else tell()
    return None if told is None else asdict(told)
