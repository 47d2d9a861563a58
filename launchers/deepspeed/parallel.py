"""Rank side of `launcher=deepspeed`: the engine of the chosen ZeRO stage."""

from __future__ import annotations

from train_bench.core.job import Job
from train_bench.launchers.deepspeed.engine import DeepSpeedParallel


def join(job: Job) -> DeepSpeedParallel:
    """Take the rank from DeepSpeed's launcher or torchrun and join the process group."""
    if job.launcher_config["zero_stage"] < 3:
        return DeepSpeedParallel(job)
    from train_bench.launchers.deepspeed.zero3 import DividedWeights

    return DividedWeights(job)
