"""Click logs in DLRM's input format: one-hot categories as table rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from train_bench.references.dlrm import criteo
from train_bench.references.dlrm.config import Config
from train_bench.references.parts.recommendation import data
from train_bench.references.parts.recommendation.config import Model
from train_bench.references.parts.recommendation.data import Batch, open_records

__all__ = ["as_batch", "open_records", "prepare", "synthetic"]


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Number, shuffle and pack the click logs into `folder`; verified and resumable.

    `source` is the data set as distributed (not needed for generated clicks). Returns at once if `folder` is
    complete. Never downloads.
    """
    data.prepare(config, folder, source, criteo.pack)
    if config.data.origin == "criteo":
        criteo.clean(folder)


def as_batch(block: np.ndarray, model: Model) -> Batch:
    """Network inputs of int32 records (n, columns): dense features are ln(x + 1)."""
    dense = np.log1p(data.counts_of(block, model).astype(np.float32))
    return data.labels_of(block), torch.from_numpy(dense), torch.from_numpy(data.rows_of(block, model))


def synthetic(config: Config, samples: int, *, seed: int = 0) -> Batch:
    """A synthetic batch; reads no data."""
    return as_batch(data.synthetic(config.model, samples, seed=seed), config.model)
