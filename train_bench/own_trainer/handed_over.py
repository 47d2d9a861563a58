"""File of what a trainer hands over to the evaluator of its run: answers as `.npy`, weights as `.safetensors`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench.own_trainer.job import VARIABLE


def file_of(handed: Any) -> Path:
    """The file itself, by its path; or one that is written now of an array or tensor (`.npy`), or of several by their
    names, such as a `state_dict()` (`.safetensors`)."""
    if isinstance(handed, str | Path):
        return Path(handed).absolute()
    import numpy as np

    path = Path(os.environ[VARIABLE]).with_name("handed_over")
    if isinstance(handed, Mapping):
        from safetensors.numpy import save_file

        path = path.with_suffix(".safetensors")
        if any(hasattr(value, "detach") for value in handed.values()):
            from safetensors import torch as tensors

            alone = {name: value.detach().cpu().clone().contiguous() for name, value in handed.items()}
            tensors.save_file(alone, path)
        else:
            save_file({name: np.asarray(value, order="C") for name, value in handed.items()}, path)
        return path
    path = path.with_suffix(".npy")
    np.save(path, np.asarray(handed.detach().cpu() if hasattr(handed, "detach") else handed))
    return path
