"""Next steps of a rank that runs out of memory."""

from __future__ import annotations

import sys

from train_bench.core.job import Job

ON_A_CPU = "DefaultCPUAllocator: can't allocate memory"


def next_step(error: BaseException, job: Job) -> str:
    """What reduces the memory of a rank, as a sentence with a space before it; empty for any other error."""
    if not _is_lack_of_memory(error):
        return ""
    steps = job.config["hyperparameters"].get("gradient_accumulation_steps", 1)
    ways = [f"benchmark.hyperparameters.gradient_accumulation_steps={2 * steps} halves the activations"]
    if job.config.get("activation_checkpointing") is False:
        ways.append("benchmark.activation_checkpointing=true keeps a part of them")
    if job.launcher_config.get("shard", "") is None:
        ways.append("launcher.shard=fsdp divides weights and optimizer among ranks")
    return (
        f" Reduce the memory of a rank: {'; '.join(ways)}. `train-bench plan --dry` counts it before a run."
    )


def _is_lack_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    on_a_gpu = getattr(torch, "OutOfMemoryError", None)
    if isinstance(error, MemoryError) or (on_a_gpu is not None and isinstance(error, on_a_gpu)):
        return True
    return isinstance(error, RuntimeError) and ON_A_CPU in str(error)
