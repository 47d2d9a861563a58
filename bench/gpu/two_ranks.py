"""Losses of a decoder on ranks that share one device, which NCCL refuses and Gloo does not.

    torchrun --nproc-per-node=2 bench/gpu/two_ranks.py WAY DEVICE FILE

As a module of `probes.py`; by hand `python bench/gpu/two_ranks.py` runs one rank alone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.planned import composed, plan_of
from train_bench.launchers.parts.torch_ranks import parallel_of
from train_bench.references.llama31_8b.task import Task
from train_bench.references.parts.decoder import data

WAYS: dict[str, tuple[str, ...]] = {
    "one rank": (),
    "DDP": (),
    "FSDP2": ("launcher.shard=fsdp",),
    "TP": ("launcher.tensor_parallel=2",),
}
BENCHMARK = "llama31_8b_mini"
STEPS = 6


def main() -> None:
    """One rank: train, and write the losses on rank 0."""
    way, device, to = (*sys.argv[1:], "one rank", "cpu", "losses.json")[:3]
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(1)
    words = (f"benchmark={BENCHMARK}", f"device={device}", "benchmark.warm_up_steps=0", "launcher=torchrun")
    config = composed([*words, f"launcher.nproc_per_node={size}", *WAYS[way]])
    job = plan_of(config, BENCHMARK).jobs[0]
    proper: Any = parallel_of(job)

    class OnOneDevice(proper):
        """Gloo on whatever device; all ranks take the first."""

        def _meet(self) -> None:
            if self.size > 1:
                dist.init_process_group("gloo", rank=self.rank, world_size=self.size)

    parallel = OnOneDevice(job, rank=rank, local_rank=0, size=size)
    task = Task(config.benchmark)
    task.build(job.seed, parallel)
    share = config.benchmark.hyperparameters.global_batch_size // parallel.data_ranks
    losses = []
    for number in range(STEPS):
        batch = (data.synthetic(config.benchmark, share * parallel.data_ranks) + number) % (
            config.benchmark.model.vocabulary
        )
        mine = batch.split(share)[parallel.data_rank]
        task.train_step(iter([mine]))
        losses.append(float(parallel.mean(task.last_loss)))
    if rank == 0:
        Path(to).write_text(json.dumps(losses))
    parallel.leave()


if __name__ == "__main__":
    main()
