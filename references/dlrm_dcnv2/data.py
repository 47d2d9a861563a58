"""Click logs in DLRM-DCNv2's input format: multi-hot categories, several rows of a table each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from train_bench.references.dlrm_dcnv2 import criteo
from train_bench.references.dlrm_dcnv2.config import Config
from train_bench.references.dlrm_dcnv2.multi_hot import MultiHot, write
from train_bench.references.parts import prepared
from train_bench.references.parts.recommendation import data
from train_bench.references.parts.recommendation.data import Batch, open_records

__all__ = ["as_batch", "batching", "open_records", "prepare", "synthetic"]


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Draw the multi-hot rows of each category and pack the click logs into `folder`; verified.

    `source` is the folder with the arrays of all days (not needed for generated clicks). Returns at once if `folder` is
    complete. Never downloads.
    """
    write(config.model, folder)
    data.prepare(config, folder, source, criteo.pack)


def batching(config: Config) -> Callable[[np.ndarray], Batch]:
    """Function from int32 records (n, columns) to a batch."""
    return partial(as_batch, config=config, multi_hot=MultiHot(config, prepared.folder_of(config)))


def as_batch(block: np.ndarray, config: Config, multi_hot: MultiHot) -> Batch:
    """Network inputs of int32 records (n, columns): of generated clicks ln(x + 1) of the counts, of Criteo's the
    logarithms whose bits they are."""
    counts = data.counts_of(block, config.model)
    dense = counts.view(np.float32) if config.data.origin == "criteo" else np.log1p(counts.astype(np.float32))
    rows = multi_hot.rows(data.rows_of(block, config.model))
    return data.labels_of(block), torch.from_numpy(np.ascontiguousarray(dense)), torch.from_numpy(rows)


def synthetic(config: Config, samples: int, *, seed: int = 0) -> Batch:
    """A synthetic batch with random rows; reads no data."""
    model = config.model
    block = data.synthetic(model, samples, seed=seed)
    rng = np.random.default_rng(seed)
    rows = [
        rng.integers(0, rows, (samples, hot)) for rows, hot in zip(model.rows, model.multi_hot, strict=True)
    ]
    dense = np.log1p(data.counts_of(block, model).astype(np.float32))
    return data.labels_of(block), torch.from_numpy(dense), torch.from_numpy(np.concatenate(rows, axis=1))
