"""Criteo's click logs as the reference of the benchmark prepares them: per day one array of labels, int32 (n, 1), one
of dense features, float32 (n, 13), which are logarithms already, and one of categories, int32 (n, 26)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError
from train_bench.references.dlrm_dcnv2.config import Config
from train_bench.references.parts.recommendation import data, records

DAYS = 24
BLOCK = 1 << 16
PARTS = {"labels": np.int32, "dense": np.float32, "sparse": np.int32}


def pack(config: Config, folder: Path, source: Path) -> dict[str, Any]:
    """Write the records of the training days, which are shuffled already, and of the first half of the last day. Dense
    features keep their bits. Returns a manifest entry per split."""
    days = [_day(source, day, config) for day in range(DAYS)]
    last = days.pop()
    half = -(-len(last["labels"]) // 2)
    data.refuse_counts(config, source, sum(len(day["labels"]) for day in days), half)
    return {
        "train": records.write_split(
            folder,
            "train",
            (block for day in bar(days, "days") for block in _blocks(day, config)),
            config.model,
        ),
        "val": records.write_split(folder, "val", _blocks(last, config, half), config.model),
    }


def _day(source: Path, day: int, config: Config) -> dict[str, np.ndarray]:
    """The arrays of a day, mapped."""
    columns = {
        "labels": 1,
        "dense": config.model.dense_features,
        "sparse": len(config.model.table_rows),
    }
    found: dict[str, np.ndarray] = {}
    for part, dtype in PARTS.items():
        path = source / f"day_{day}_{part}.npy"
        if not path.is_file():
            raise RequestError(
                f"{path} is missing; the source has day_0 to day_{DAYS - 1}, each with {', '.join(PARTS)}. Prepare "
                f"them with the scripts of the benchmark's reference, or fetch them."
            )
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise RequestError(f"{path} is not an array of numbers: {error}. Fetch it again.") from error
        rows = len(found["labels"]) if found else len(array)
        if array.dtype != dtype or array.shape != (rows, columns[part]):
            raise RequestError(
                f"{path} has {array.dtype} {array.shape}; {np.dtype(dtype)} ({rows}, {columns[part]}) is needed. "
                f"Fetch it again."
            )
        found[part] = array
    return found


def _blocks(day: dict[str, np.ndarray], config: Config, samples: int | None = None) -> Iterator[np.ndarray]:
    """int32 records (n, columns); categories are taken modulo the rows of their table."""
    samples = len(day["labels"]) if samples is None else samples
    for first in range(0, samples, BLOCK):
        labels, dense, categories = (day[part][first : min(first + BLOCK, samples)] for part in PARTS)
        if not (np.isfinite(dense) & (dense >= 0)).all():
            wrong = dense[~(np.isfinite(dense) & (dense >= 0))][0]
            raise RequestError(
                f"A dense feature within {BLOCK} records from {first} of a day is {wrong}; logarithms from 0 up are "
                f"needed. Prepare the source again."
            )
        bits = np.ascontiguousarray(dense).view(np.int32)
        yield np.concatenate([labels, bits, categories % np.asarray(config.model.table_rows)], axis=1).astype(
            np.int32
        )
