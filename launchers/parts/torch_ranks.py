"""Rank side of `sharding.py`: DistributedDataParallel, FSDP2 or tensor parallelism over Gloo or NCCL."""

from __future__ import annotations

from train_bench.core.job import Job
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.tensor_parallel import TensorParallel


def parallel_of(job: Job) -> type[TorchParallel]:
    """The `Parallel` of the configuration: DDP, FSDP2 or tensor parallelism."""
    if job.launcher_config.get("shard") is not None:
        return ShardedParallel
    return TorchParallel if job.launcher_config.get("tensor_parallel", 1) == 1 else TensorParallel
