"""The state of a run in one file: weights, optimizer, numerics, and how far it has come."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from train_bench import files
from train_bench.parallel import Parallel

FILE = "checkpoint.pt"


def save(
    folder: Path,
    parallel: Parallel,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    counters: dict[str, int],
) -> None:
    """Called by every rank; rank 0 writes, in one step, so that a file is whole or not there."""
    parallel.sync_buffers()
    if parallel.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "parallel": parallel.state_dict(),
            "counters": counters,
        }
        with files.whole_file(folder / FILE) as file:
            torch.save(state, file)
    parallel.barrier()


def load(
    folder: Path, parallel: Parallel, model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, int]:
    """Called by every rank, after the model is built; returns the counters that were saved."""
    state = torch.load(folder / FILE, map_location=parallel.device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    parallel.load_state_dict(state["parallel"])
    counters: dict[str, int] = state["counters"]
    return counters
