"""Start weights: a numpy archive (.npz) of float32 arrays, named and shaped as the tensors of the rules.

A kernel is (inputs, outputs) there and the transpose of it here; all other tensors have one shape in both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from train_bench.errors import RequestError
from train_bench.references.bert.model import tensor_name
from train_bench.references.parts import archives


def load_start_weights(model: nn.Module, path: Path) -> None:
    """Fill every parameter of `model` from the archive. Other arrays in it (moments of an optimizer, step
    counts) are ignored; a missing one, another shape and values that are not finite are refused."""
    archive = archives.Arrays(path)
    for name, parameter in model.named_parameters():
        _fill(parameter, tensor_name(name), archive, path)


def _fill(parameter: nn.Parameter, name: str, archive: archives.Arrays, path: Path) -> None:
    if name not in archive.names:
        raise RequestError(
            f"The start weights {path} have no tensor {name}; it has {len(archive.names)} others. Convert the "
            "whole checkpoint."
        )
    array, shape = archive.read(name, parameter.numel()), tuple(parameter.shape)
    if name.endswith("/kernel"):
        shape = shape[::-1]
    if array.shape != shape:
        raise RequestError(
            f"The start weights {path} have {name} of shape {array.shape}; the model's is {shape}."
        )
    if name.endswith("/kernel"):
        array = array.T
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise RequestError(f"The start weights {path} have {name} with values that are not finite numbers.")
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)))
