"""Threads of a rank: as requested, else by OMP_NUM_THREADS, else by the size of the benchmark."""

from __future__ import annotations

import os
from collections.abc import Mapping

from train_bench.errors import RequestError
from train_bench.plan.run_config import RunConfig


def decided(config: RunConfig) -> RunConfig:
    """Configuration with the threads of a rank; null for a user's program without a number, which chooses itself."""
    launcher = config.launcher
    if launcher.threads_per_rank is None:
        launcher.threads_per_rank = threads_of_environment(os.environ)
    if launcher.threads_per_rank is None and config.command is None:
        launcher.threads_per_rank = config.benchmark.threads_per_rank
    return config


def threads_of_environment(environ: Mapping[str, str]) -> int | None:
    """Threads per rank by OMP_NUM_THREADS; None if it is not set. Of a list for nested regions, the outermost
    counts."""
    text = environ.get("OMP_NUM_THREADS", "").strip()
    if not text:
        return None
    first = text.partition(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        raise RequestError(
            f"OMP_NUM_THREADS is {text!r}; it has to be a positive whole number. Unset it, or give "
            "launcher.threads_per_rank."
        )
    return int(first)
