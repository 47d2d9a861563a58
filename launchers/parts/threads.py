"""Threads of ranks, as a launcher passes them on."""

from __future__ import annotations

from train_bench.core.job import Job


def thread_variables(job: Job) -> dict[str, str]:
    """`OMP_NUM_THREADS` of the plan. References without a number get 1, and choose their threads themselves
    (`run/rank.py`). A program of the user's own gets none then; what torchrun sets instead, `own_trainer/command.py`
    removes."""
    if job.command is not None and job.threads_per_rank is None:
        return {}
    return {"OMP_NUM_THREADS": str(job.threads_per_rank or 1)}
