"""A decoder of narrow layers, trained and evaluated by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.references.configs import llama31_8b
from tests.run.fakes import job
from train_bench.core.sharded_tensors import own_part
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.references.llama31_8b.task import Task
from train_bench.references.parts.decoder import data


def one_rank() -> TorchParallel:
    return TorchParallel(job(Path("out")), rank=0, local_rank=0, size=1)


def decoder(*more: str) -> Any:
    small = ("model.width=16", "model.head_size=4", "model.intermediate=24", "warm_up_steps=1")
    return llama31_8b(
        "llama31_8b_mini",
        *small,
        *("hyperparameters.global_batch_size=4", "hyperparameters.opt_learning_rate_warmup_steps=0"),
        *more,
    )


def built(parallel: Any, *more: str) -> Task:
    task = Task(decoder(*more))
    task.build(1, parallel)
    return task


def trained(task: Task, steps: range) -> list[float]:
    """The mean loss over ranks of each step. Every step has a batch of its own."""
    parallel = task.parallel
    losses = []
    for step in steps:
        batch = data.synthetic(task.config, 4).roll(step, dims=1) + step
        mine = (batch % task.config.model.vocabulary).chunk(parallel.data_ranks)[parallel.data_rank]
        task.train_step(iter([mine]))
        losses.append(float(parallel.mean(task.last_loss)))
    return losses


def evaluated(task: Task, batches: int) -> float:
    """Nats of as many batches as the rank likes, summed over ranks."""
    task.parallel.sync_buffers()
    task.forward.eval()
    counted = sum(task._count(data.synthetic(task.config, 2))[0] for _ in range(batches))
    task.forward.train()
    return float(task.parallel.sum(torch.as_tensor(counted, dtype=torch.float64)))


def held_bytes(task: Task) -> dict[str, int]:
    """Of this rank."""
    state = [one for of in task.optimizer.state.values() for one in of.values() if one.dim()]
    tensors = {"weights": list(task.model.parameters()), "state": state}
    return {name: sum(own_part(one).nbytes for one in of) for name, of in tensors.items()}
