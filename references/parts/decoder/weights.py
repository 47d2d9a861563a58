"""Published weights: safetensors files, one or several with an index of their tensors.

Tensors are named as ours but for a prefix, `model.`, of all but the output layer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from train_bench.core import files
from train_bench.core.sharded_tensors import own_part, own_slices
from train_bench.errors import RequestError

ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"

OF_TOKENS = ("embed_tokens.weight", "lm_head.weight")
"""Parameters with a row for each token."""


def published_name(parameter: str) -> str:
    """layers.3.mlp.up_proj.weight is model.layers.3.mlp.up_proj.weight."""
    return parameter if parameter.startswith("lm_head.") else f"model.{parameter}"


def save_weights(model: nn.Module, path: Path) -> None:
    """Write every parameter of `model` into one file."""
    tensors = {published_name(name): one.detach().contiguous() for name, one in model.named_parameters()}
    save_file(tensors, str(path), metadata={"format": "pt"})


def load_start_weights(
    model: nn.Module, path: Path, *, cut_rows: bool = False, frozen_only: bool = False
) -> None:
    """Fill every parameter of `model`, or those that are not trained, from a file, or from the files of a folder; of a
    sharded one this rank reads its shard alone. A missing tensor, another shape and values that are not finite are
    refused; other tensors are ignored. With `cut_rows`, embedding and output layer take the first rows of tensors that
    have more."""
    where = _places(path)
    by_file: dict[Path, list[str]] = {}
    parameters = {
        name: one for name, one in model.named_parameters() if not (frozen_only and one.requires_grad)
    }
    for name in parameters:
        if where and published_name(name) not in where:
            raise _lacking(path, name)
        by_file.setdefault(where.get(published_name(name), _only(path)), []).append(name)
    for file, names in by_file.items():
        try:
            with safe_open(str(file), framework="pt") as opened:
                held = set(opened.keys())
                for name in names:
                    if published_name(name) not in held:
                        raise _lacking(file, name)
                    stored = opened.get_slice(published_name(name))
                    shape = tuple(stored.get_shape())
                    if cut_rows and name in OF_TOKENS:
                        shape = (min(shape[0], len(parameters[name])), *shape[1:])
                    _fill(parameters[name], stored, shape, f"{file}: {name}")
        except (OSError, SafetensorError) as error:
            raise RequestError(
                f"The start weights {file} cannot be read: {error}. Fetch them again."
            ) from error


def _only(path: Path) -> Path:
    return path / ONE_FILE if path.is_dir() else path


def _places(path: Path) -> dict[str, Path]:
    """Files by tensor, where there is an index."""
    if not (path / INDEX).is_file():
        return {}
    content = files.read_json(path / INDEX)
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not all(
        isinstance(file, str) and "/" not in file for file in names.values()
    ):
        raise RequestError(
            f"{path / INDEX} has no weight_map from tensors to files beside it. Fetch it again."
        )
    return {name: path / file for name, file in names.items()}


def _lacking(where: Path, name: str) -> RequestError:
    return RequestError(
        f"The start weights {where} have no tensor {published_name(name)}. Fetch the whole checkpoint."
    )


def _fill(parameter: nn.Parameter, stored: Any, shape: tuple[int, ...], where: str) -> None:
    """Read the rows and columns that this rank holds of a stored tensor."""
    if shape != parameter.shape:
        raise RequestError(f"{where} has the shape {shape}; the model's is {tuple(parameter.shape)}.")
    own = own_part(parameter.detach())
    if not own.numel():
        return  # more ranks than rows
    places = zip(own_slices(parameter), shape, strict=True)
    held = stored[tuple(slice(*place.indices(size)[:2]) for place, size in places)]
    if not held.is_floating_point() or not bool(torch.isfinite(held).all()):
        raise RequestError(f"{where} has values that are not finite numbers.")
    own.copy_(held)
