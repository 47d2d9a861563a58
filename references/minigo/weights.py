"""Weight files: a zip of numpy arrays (.npz) with the reference's names and layouts. No content of such a file is
executed.

    conv2d_N/kernel                  float (height, width, inputs, outputs)
    batch_normalization_N/gamma      float (channels,), where the layer has them
    batch_normalization_N/beta
    batch_normalization_N/moving_mean, moving_variance
    dense_N/kernel                   float (inputs, outputs)
    dense_N/bias
    global_step                      integer, steps that were trained
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.references.minigo.model import Network, layers
from train_bench.references.parts import archives

GLOBAL_STEP = "global_step"


def tensors_of(model: Network) -> dict[str, Tensor]:
    """Every tensor of the file by its name, as the model keeps it."""
    tensors: dict[str, Tensor] = {}
    for name, layer in layers(model).items():
        if isinstance(layer, nn.BatchNorm2d):
            if layer.affine:
                tensors |= {f"{name}/gamma": layer.weight, f"{name}/beta": layer.bias}
            assert layer.running_mean is not None and layer.running_var is not None
            tensors |= {
                f"{name}/moving_mean": layer.running_mean,
                f"{name}/moving_variance": layer.running_var,
            }
        else:
            assert isinstance(layer, (nn.Conv2d, nn.Linear))
            tensors[f"{name}/kernel"] = layer.weight
            if layer.bias is not None:
                tensors[f"{name}/bias"] = layer.bias
    return tensors


def _turned(array: np.ndarray) -> np.ndarray:
    """A kernel of ours in the reference's layout."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def _turned_back(array: np.ndarray) -> np.ndarray:
    return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T


def write(path: Path, model: Network, step: int) -> None:
    """Keep `model` after `step` steps."""
    arrays: dict[str, Any] = {
        name: _turned(tensor.detach().cpu().numpy()) for name, tensor in tensors_of(model).items()
    }
    arrays[GLOBAL_STEP] = np.int64(step)
    with files.whole_file(path) as file:
        np.savez(file, **arrays)


def read(path: Path, model: Network) -> int:
    """Fill `model` and return the step count.

    Raises RequestError with the file and the variables where one is missing or misshapen, or where the file
    is none of these.
    """
    wanted = tensors_of(model)
    sizes = {name: tensor.numel() for name, tensor in wanted.items()} | {GLOBAL_STEP: 1}
    stored = archives.Arrays(path)
    _refuse_missing(path, stored.names, list(sizes))
    arrays = {name: stored.read(name, values) for name, values in sizes.items()}
    for name, tensor in wanted.items():
        array, shape = arrays[name], _turned(np.empty(tuple(tensor.shape), np.bool_)).shape
        if array.shape != shape or array.dtype.kind != "f":
            raise RequestError(
                f"{path}: {name} is {array.dtype} of shape {array.shape}; a network of this size has floating-point "
                f"numbers of shape {shape}."
            )
        if not np.isfinite(array).all():
            raise RequestError(f"{path}: {name} has values that are not finite.")
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(np.array(_turned_back(array), dtype=np.float32)))
    step = arrays[GLOBAL_STEP]
    if step.shape != () or step.dtype.kind not in "iu" or step < 0:
        raise RequestError(f"{path}: {GLOBAL_STEP} is {step!r}; it has to be one integer, 0 or more.")
    return int(step)


def _refuse_missing(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in names]
    unknown = sorted(set(names) - set(wanted))
    if missing:
        raise RequestError(
            f"{path} lacks {', '.join(missing)}; it has {len(names)} of {len(wanted)} variables."
        )
    if unknown:
        raise RequestError(f"{path} has variables that the network does not have: {', '.join(unknown)}.")
