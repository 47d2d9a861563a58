"""Checkpoint of a run: a file of weights, optimizer, numerics and progress, and of sharded tensors a file of each rank
with its shards. Nothing is gathered, and another number of ranks reads of each file what it needs.

The files hold tensors, numbers and text alone: loading them runs no code (torch's `weights_only`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from train_bench.core import files
from train_bench.core.sharded_tensors import holds_first_copy, is_sharded, own_part, own_slices
from train_bench.errors import LaunchError
from train_bench.parallel import Parallel

FILE = "checkpoint.pt"
SHARDS = "shards_{save}_{rank}.pt"

Shard = tuple[list[int], Tensor]
"""Where it begins in its whole tensor, and its values."""


def save(
    folder: Path,
    parallel: Parallel,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    counters: Mapping[str, Any],
) -> None:
    """Save, called by every rank. Each writes the shards of which it has the first copy, under names of this save; then
    rank 0 the rest, which names these files, and those of earlier saves go: whenever this ends, a whole checkpoint is
    left."""
    parallel.sync_buffers()
    shards: dict[str, Shard] = {}
    state = {
        name: _take_shards(of.state_dict(), name, shards)
        for name, of in (("model", model), ("optimizer", optimizer), ("parallel", parallel))
    }
    folder.mkdir(parents=True, exist_ok=True)
    number = parallel.from_rank_zero(secrets.token_hex(8))
    mine = folder / SHARDS.format(save=number, rank=parallel.rank)
    if shards:
        _write(mine, shards)
        files.sync_file(mine)
    written = parallel.gather_objects(mine.name if shards else None)
    if written is not None:
        names = [name for name in written if name is not None]
        _write(folder / FILE, {**state, "counters": counters, "shards": names})
        for old in folder.glob(SHARDS.format(save="*", rank="*")):
            if old.name not in names:
                old.unlink()
    parallel.barrier()


def load(
    folder: Path, parallel: Parallel, model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Load, called by every rank after the model is built; returns the saved counters. Files are mapped, and each
    tensor, or this rank's shard of it, is copied to its place: no file is ever in memory as a whole."""
    state = _read(folder / FILE)
    shards = [_read(folder / name) for name in state.get("shards", ())]

    def shards_of(values: Tensor, key: str) -> Sequence[Shard]:
        if not values.is_meta:
            return [([0] * values.dim(), values)]
        return [held[key] for held in shards if key in held]

    like = model.state_dict()
    for name, values in state["model"].items():
        place = like.get(name)
        if isinstance(place, Tensor) and place.shape == values.shape:
            _fill(place.detach(), shards_of(values, f"model/{name}"), name)
            state["model"][name] = place
    model.load_state_dict(state["model"])
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for number, of_weight in state["optimizer"]["state"].items():
        weight = weights[number]
        for key, values in of_weight.items():
            if not isinstance(values, Tensor):
                continue
            if values.shape != weight.shape:
                of_weight[key] = values.clone()
                continue
            of_weight[key] = torch.empty_like(weight.detach(), dtype=values.dtype)
            path = f"optimizer/state/{number}/{key}"
            _fill(of_weight[key], shards_of(values, path), path)
    optimizer.load_state_dict(state["optimizer"])
    parallel.load_state_dict(state["parallel"])
    counters: dict[str, Any] = state["counters"]
    return counters


def _take_shards(state: Any, path: str, shards: dict[str, Shard]) -> Any:
    """A `state_dict` with meta tensors in place of sharded ones. Those of which this rank writes a shard are added to
    `shards`, by their path."""
    if isinstance(state, Mapping):
        return {name: _take_shards(value, f"{path}/{name}", shards) for name, value in state.items()}
    if not isinstance(state, Tensor) or not is_sharded(state):
        return state
    if holds_first_copy(state):
        values = own_part(state.detach())
        if values.untyped_storage().nbytes() > values.nbytes:
            values = values.clone()  # torch.save writes whole storages
        shards[path] = ([place.start for place in own_slices(state)], values)
    return torch.empty(state.shape, dtype=state.dtype, device="meta")


@torch.no_grad()
def _fill(tensor: Tensor, shards: Sequence[Shard], name: str) -> None:
    """Copy to this rank's part of `tensor` what `shards` have of it. Raises `LaunchError` if that is not all."""
    own, copied = own_part(tensor), 0
    mine = [place.indices(size)[:2] for place, size in zip(own_slices(tensor), tensor.shape, strict=True)]
    for firsts, values in shards:
        theirs = [(first, first + size) for first, size in zip(firsts, values.shape, strict=True)]
        both = [(max(a, c), max(a, c, min(b, d))) for (a, b), (c, d) in zip(mine, theirs, strict=True)]
        into = own[tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(both, mine, strict=True))]
        into.copy_(
            values[
                tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(both, theirs, strict=True))
            ]
        )
        copied += into.numel()
    if copied != own.numel():
        raise LaunchError(
            f"The checkpoint has {copied} of the {own.numel()} values that this rank needs of {name}; files of some "
            "ranks are missing. Continue from another checkpoint, or start the run again."
        )


def _write(path: Path, content: Any) -> None:
    with files.whole_file(path) as file:
        torch.save(content, file)


def _read(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
