"""Rank side of `sharding.py`: DistributedDataParallel, FSDP2, tensor parallelism or both over Gloo or NCCL."""

from __future__ import annotations

from train_bench.core.job import Job
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.fsdp_tensor_parallel import ShardedTensorParallel
from train_bench.launchers.parts.tensor_parallel import TensorParallel


def parallel_of(job: Job) -> type[TorchParallel]:
    """The `Parallel` of the configuration."""
    divides = job.launcher_config.get("tensor_parallel", 1) > 1
    if job.launcher_config.get("shard") is not None:
        return ShardedTensorParallel if divides else ShardedParallel
    return TensorParallel if divides else TorchParallel
