"""Rank side of `launcher=torchrun`."""

from __future__ import annotations

import os

from train_bench.core.job import Job
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.launchers.parts.torch_ranks import parallel_of


def join(job: Job) -> TorchParallel:
    """Take the rank from torchrun and join the process group."""
    return parallel_of(job)(
        job,
        rank=int(os.environ["RANK"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        size=int(os.environ["WORLD_SIZE"]),
    )
