"""Kept weights: the evaluated model as safetensors next to its log once the clock has stopped, and their loading.

Rank 0 writes its tensors, other ranks those that rank 0 lacks (sharded tables).
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from train_bench.core import files
from train_bench.core.job import WEIGHTS, Job
from train_bench.core.sharded_tensors import is_sharded, own_part, own_slices, whole
from train_bench.errors import LaunchError
from train_bench.parallel import Parallel
from train_bench.task import ExportsWeights, Task

if TYPE_CHECKING:
    import torch


def require_export(task: Task, job: Job) -> ExportsWeights:
    """The task, if it exports its weights; raises `LaunchError` otherwise."""
    if not hasattr(task, "weights"):
        raise LaunchError(
            f"keep_weights=true asks the reference {job.reference} for its weights, and its Task has no method "
            f"weights(); define it (train_bench/task.py), or leave keep_weights out."
        )
    return cast(ExportsWeights, task)


def write_weights(task: ExportsWeights, job: Job, parallel: Parallel) -> dict[str, Any] | None:
    """Called by every rank. On rank 0, as logged: the `files` with the sha256 of each, or the `error` of one of the
    ranks; the result is written by then, and stays. Sharded tensors are gathered one by one: no rank has more than one
    of them whole."""
    mine: dict[str, torch.Tensor] = {}
    written: dict[str, str] = {}
    error = None
    try:
        mine = _in_order_of_a_file(distinct(task.weights()))
    except Exception as raised:  # the other ranks wait for this one
        error = raised
    of_first = parallel.from_rank_zero(list(mine))
    if parallel.rank > 0:
        for name in of_first:
            if name in mine:
                whole(mine.pop(name))
    values = map(whole, mine.values())
    if mine:
        try:
            path = job.folder / WEIGHTS / _name(job.index, parallel.rank)
            written[path.name] = _write(path, mine, values)
        except Exception as raised:
            error = raised
            deque(values, maxlen=0)  # the other ranks gather the rest with this one
    failure = None if error is None else f"rank {parallel.rank}: {type(error).__name__}: {error}"
    gathered = parallel.gather_objects((written, failure))
    if gathered is None:
        return None
    failed = [sentence for _, sentence in gathered if sentence is not None]
    if failed:
        return {"error": "; ".join(failed)}
    return {"files": {name: digest for each, _ in gathered for name, digest in each.items()}}


def put_back(task: ExportsWeights, kept: Sequence[Path]) -> None:
    """Load the weights of these files into a built task; they may come from any number of ranks. Raises `LaunchError`
    where a tensor is missing or of another shape."""
    import torch
    from safetensors import safe_open

    mine = distinct(task.weights())
    missing = set(mine)
    with torch.no_grad():
        for path in kept:
            with safe_open(path, "pt") as file:
                for name in missing.intersection(file.keys()):
                    place = mine[name]
                    if not is_sharded(place):
                        value = file.get_tensor(name)
                        refuse_other_shape(path, name, value, place)
                        place.copy_(value)
                        continue
                    stored, own = file.get_slice(name), own_part(place)
                    value = stored[own_slices(place)] if own.numel() else own  # more ranks than rows
                    alike = torch.empty(stored.get_shape(), dtype=value.dtype, device="meta")
                    refuse_other_shape(path, name, alike, place)
                    own.copy_(value)
                missing.difference_update(file.keys())
    refuse_missing(missing)


def refuse_other_shape(path: Path, name: str, value: torch.Tensor, mine: torch.Tensor) -> None:
    """Raise `LaunchError` if a tensor of a file does not have the model's shape, or a type whose numbers the model's
    does not hold. Sharded runs hold frozen weights in the numerics of the job."""
    import torch

    floats = value.is_floating_point() and mine.is_floating_point()
    kind = torch.promote_types(value.dtype, mine.dtype) if floats else value.dtype
    if (value.shape, kind) != (mine.shape, mine.dtype):
        raise LaunchError(
            f"{path} holds {name} as {value.dtype} {tuple(value.shape)}, and the model as it is configured has "
            f"{mine.dtype} {tuple(mine.shape)}."
        )


def refuse_missing(names: Collection[str]) -> None:
    """Raise `LaunchError` if tensors of a model were in no file."""
    if names:
        raise LaunchError(f"The kept weights lack {len(names)} tensors of the model, first {min(names)}.")


def distinct(named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without aliases of the same memory (tied layers)."""
    seen: dict[tuple[object, ...], str] = {}
    for name, tensor in named.items():
        place: tuple[object, ...] = (name,)
        if tensor.numel() and not is_sharded(tensor):
            place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        seen.setdefault(place, name)
    return {name: named[name].detach() for name in seen.values()}


def _in_order_of_a_file(named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Larger elements first, which keeps all tensors of a file aligned."""
    return dict(sorted(named.items(), key=lambda each: (-each[1].element_size(), each[0])))


def _write(path: Path, named: Mapping[str, torch.Tensor], values: Iterator[torch.Tensor]) -> str:
    """Write a safetensors file atomically, a tensor at a time, with the names, shapes and types of `named` and the
    `values` of each; returns its sha256."""
    import torch

    path.parent.mkdir(exist_ok=True)
    with files.whole_file(path) as file:
        file.write(_header(named))
        for value in values:
            file.write(value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())
    files.sync_folder(path.parent)
    return files.digest(path)


def _header(named: Mapping[str, torch.Tensor]) -> bytes:
    """Length and JSON of names, types, shapes and places, as the format has them."""
    import torch
    from safetensors.torch import save

    content: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in named.items():
        of_empty = save({"": torch.empty(0, dtype=tensor.dtype)})  # spells the type
        start, end = end, end + tensor.numel() * tensor.element_size()
        content[name] = {
            "dtype": json.loads(of_empty[8:])[""]["dtype"],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(content, separators=(",", ":"))
    aligned = text.encode() + b" " * (-len(text.encode()) % 8)
    return len(aligned).to_bytes(8, "little") + aligned


def _name(index: int, rank: int) -> str:
    return f"run_{index}.safetensors" if rank == 0 else f"run_{index}_rank_{rank}.safetensors"
