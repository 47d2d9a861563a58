"""Rank side of `launcher=inline`: one rank, no process group."""

from __future__ import annotations

from train_bench.core.job import Job
from train_bench.launchers.parts.ddp import TorchParallel


def join(job: Job) -> TorchParallel:
    """The only rank of its run."""
    return TorchParallel(job, rank=0, local_rank=0, size=1)
