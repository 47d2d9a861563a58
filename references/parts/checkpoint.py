"""Checkpoint of a run in one file: weights, optimizer, numerics and progress."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from train_bench.core import files, sharded_tensors
from train_bench.core.sharded_tensors import part
from train_bench.parallel import Parallel

FILE = "checkpoint.pt"


def save(
    folder: Path,
    parallel: Parallel,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    counters: Mapping[str, Any],
) -> None:
    """Save, called by every rank; rank 0 writes atomically. Sharded tensors are whole in the file."""
    parallel.sync_buffers()
    state = {
        name: sharded_tensors.whole_state(of.state_dict(), keep=parallel.rank == 0)
        for name, of in (("model", model), ("optimizer", optimizer), ("parallel", parallel))
    }
    if parallel.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        state["counters"] = counters
        with files.whole_file(folder / FILE) as file:
            torch.save(state, file)
    parallel.barrier()


def load(
    folder: Path, parallel: Parallel, model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Load, called by every rank after the model is built; returns the saved counters. The file is mapped, and each
    tensor, or this rank's shard of it, is copied to its place: the file is never in memory as a whole."""
    state = torch.load(folder / FILE, map_location="cpu", weights_only=True, mmap=True)
    like = model.state_dict()
    model.load_state_dict({name: part(one, like[name]) for name, one in state["model"].items()})
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for number, of_weight in state["optimizer"]["state"].items():
        weight = weights[number]
        for key, one in of_weight.items():
            alike = one.shape == weight.shape
            of_weight[key] = part(one, weight).to(weight.device, copy=True) if alike else one.clone()
    optimizer.load_state_dict(state["optimizer"])
    parallel.load_state_dict(state["parallel"])
    counters: dict[str, Any] = state["counters"]
    return counters
