"""Start weights: a numpy archive (.npz) of float32 arrays, named and shaped as the tensors of the rules.

A kernel is (inputs, outputs) there and the transpose of it here; all other tensors have one shape in both.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from references.bert.model import tensor_name
from train_bench.errors import RequestError


def load_start_weights(model: nn.Module, path: Path) -> None:
    """Fill every parameter of `model` from the archive. Other arrays in it (moments of an optimizer, step
    counts) are ignored; a missing one, another shape and values that are not finite are refused."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name, parameter in model.named_parameters():
                _fill(parameter, tensor_name(name), archive, path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RequestError(
            f"The start weights {path} cannot be read: {error}. An .npz archive is expected, as numpy.savez "
            "writes it."
        ) from error


def _fill(parameter: nn.Parameter, name: str, archive: np.lib.npyio.NpzFile, path: Path) -> None:
    if name not in archive:
        raise RequestError(
            f"The start weights {path} have no tensor {name}; it has {len(archive.files)} others. Convert the "
            "whole checkpoint."
        )
    array = archive[name]
    if name.endswith("/kernel"):
        array = array.T
    if array.shape != tuple(parameter.shape):
        raise RequestError(
            f"The start weights {path} have {name} of shape {archive[name].shape}; the model's is "
            f"{tuple(parameter.shape[::-1] if name.endswith('/kernel') else parameter.shape)}."
        )
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise RequestError(f"The start weights {path} have {name} with values that are not finite numbers.")
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)))
