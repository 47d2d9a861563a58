"""Kept weights: the evaluated model as safetensors next to its log once the clock has stopped, and their loading.

Rank 0 writes its tensors, other ranks those that rank 0 lacks (sharded tables).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from train_bench.core import files
from train_bench.core.job import WEIGHTS, Job
from train_bench.core.sharded_tensors import is_sharded, part, whole_state
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
    ranks; the result is written by then, and stays."""
    mine: Mapping[str, torch.Tensor] = {}
    written: dict[str, str] = {}
    error = None
    try:
        mine = whole_state(distinct(task.weights()), keep=parallel.rank == 0)
    except Exception as raised:  # the other ranks wait for this one
        error = raised
    of_first = set(parallel.from_rank_zero(list(mine)))
    if parallel.rank > 0:
        mine = {name: tensor for name, tensor in mine.items() if name not in of_first}
    if mine:
        try:
            path = job.folder / WEIGHTS / _name(job.index, parallel.rank)
            written[path.name] = _write(path, mine)
        except Exception as raised:
            error = raised
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
                    value = file.get_tensor(name)
                    refuse_other_shape(path, name, value, mine[name])
                    mine[name].copy_(part(value, mine[name]))
                missing.difference_update(file.keys())
    refuse_missing(missing)


def refuse_other_shape(path: Path, name: str, value: torch.Tensor, mine: torch.Tensor) -> None:
    """Raise `LaunchError` if a tensor of a file does not have the model's shape and type."""
    if (value.shape, value.dtype) != (mine.shape, mine.dtype):
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


def _write(path: Path, named: Mapping[str, torch.Tensor]) -> str:
    """Write the file atomically; returns its sha256."""
    from safetensors.torch import save_file

    path.parent.mkdir(exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        save_file(
            {name: tensor.cpu().contiguous() for name, tensor in named.items()},
            part,
            metadata={"format": "pt"},  # one entry: the order of several would vary
        )
        part.chmod(path.parent.stat().st_mode & 0o666)  # it was created readable by its owner alone
        files.sync_file(part)
        part.replace(path)
        files.sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)
    return files.digest(path)


def _name(index: int, rank: int) -> str:
    return f"run_{index}.safetensors" if rank == 0 else f"run_{index}_rank_{rank}.safetensors"
