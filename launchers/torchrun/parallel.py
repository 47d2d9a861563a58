"""Rank side of `launcher=torchrun`: DistributedDataParallel over Gloo or NCCL."""

from __future__ import annotations

import os

from train_bench.job import Job
from train_bench.launchers.parts.ddp import TorchParallel


def join(job: Job) -> TorchParallel:
    """Take the rank that torchrun gave this process and meet the others."""
    return TorchParallel(
        job,
        rank=int(os.environ["RANK"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        size=int(os.environ["WORLD_SIZE"]),
    )
