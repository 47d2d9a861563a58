"""Rank side of `launcher=torchrun`: DistributedDataParallel, FSDP2 or tensor parallelism over Gloo or NCCL."""

from __future__ import annotations

import os

from train_bench.core.job import Job
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.tensor_parallel import TensorParallel


def parallel_of(job: Job) -> type[TorchParallel]:
    """The `Parallel` of the configuration: DDP, FSDP2 or tensor parallelism."""
    if job.launcher_config.get("shard") is not None:
        return ShardedParallel
    return TorchParallel if job.launcher_config.get("tensor_parallel", 1) == 1 else TensorParallel


def join(job: Job) -> TorchParallel:
    """Take the rank from torchrun and join the process group."""
    return parallel_of(job)(
        job,
        rank=int(os.environ["RANK"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        size=int(os.environ["WORLD_SIZE"]),
    )
