"""Data sets of a few arrays with one row per sample, one file each: for benchmarks whose data fit into memory. `write`
is for `prepare`, `open_splits` for `open_data`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.references.parts import prepared

FORMAT = 1
LABELS = "labels"
"""The array that `permute_labels` shuffles."""


def write(config: Any, folder: Path, splits: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write the arrays of `train` and `val` into `folder` and check them. Arrays of a split have equal lengths; one is
    called `labels`. The manifest comes last, so that a folder is whole or not there."""
    digest, samples = hashlib.sha256(), {}
    for split in prepared.SPLITS:
        lengths = {len(array) for array in splits[split].values()}
        if LABELS not in splits[split] or len(lengths) != 1:
            raise RequestError(
                f"The arrays of {split} have {sorted(lengths)} rows; they need equal numbers, and labels."
            )
        samples[split] = lengths.pop()
        for name, array in sorted(splits[split].items()):
            path = folder / split / f"{name}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.whole_file(path) as file:
                np.save(file, array)
            digest.update(f"{split} {name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    manifest = {"format": FORMAT, "samples": samples, "sha256": digest.hexdigest()}
    _check(config, folder, manifest)
    files.write_json(folder / prepared.MANIFEST, manifest)


def is_written(config: Any, folder: Path) -> bool:
    """True if `folder` holds the data already; refuses other data."""
    manifest = prepared.read_manifest(folder, FORMAT)
    if manifest is not None:
        _check(config, folder, manifest)
    return manifest is not None


def open_splits(config: Any) -> tuple[ArraySet, ArraySet]:
    """The training and the evaluation set of `config.data_dir`: the first touch of the data."""
    folder = prepared.folder_of(config)
    _check(config, folder, prepared.opened_manifest(config, folder, FORMAT))
    train, val = (ArraySet.read(folder / split) for split in prepared.SPLITS)
    if config.data.permute_labels:
        order = np.random.default_rng(0).permutation(len(train))
        train.arrays[LABELS] = train.arrays[LABELS][order]
    return train, val


def _check(config: Any, folder: Path, manifest: Mapping[str, Any]) -> None:
    wanted = {"train": config.train_samples, "val": config.eval_samples}
    if manifest["samples"] != wanted:
        raise RequestError(
            f"{config.benchmark} has {wanted['train']} training and {wanted['val']} evaluation samples; found "
            f"{manifest['samples']['train']} and {manifest['samples']['val']} in {folder}."
        )
    prepared.check_contents(config, folder, manifest["sha256"], config.data.sha256)


@dataclass(frozen=True, slots=True)
class ArraySet(Dataset):
    """The samples of a split. A list of indices, or of pairs (index, position), is answered by a batch: a tensor of
    each array, in the order of their names."""

    folder: Path
    arrays: dict[str, np.ndarray]
    padding: Mapping[str, int] = field(default_factory=dict)
    """What rows past the set are filled with, by the name of the array."""

    @classmethod
    def read(cls, folder: Path) -> ArraySet:
        """All arrays of a folder, in memory."""
        paths = sorted(folder.glob("*.npy"))
        return cls(folder, {path.stem: np.load(path, allow_pickle=False) for path in paths})

    def __getitem__(self, items: Sequence[int | tuple[int, int]]) -> tuple[Tensor, ...]:
        rows = np.array([item if isinstance(item, int) else item[0] for item in items])
        past = rows >= len(self)
        if not past.any():
            return tuple(torch.from_numpy(array[rows]) for array in self.arrays.values())
        batch = {name: array[np.where(past, 0, rows)] for name, array in self.arrays.items()}
        for name, array in batch.items():
            array[past] = self.padding[name]
        return tuple(map(torch.from_numpy, batch.values()))

    def __len__(self) -> int:
        return len(self.arrays[LABELS])

    @property
    def stored(self) -> ArraySet:
        """Itself: nothing is augmented."""
        return self

    def files(self) -> Sequence[Path]:
        """One file per array."""
        return [self.folder / f"{name}.npy" for name in self.arrays]

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,): the row of every array."""
        rows = [
            np.ascontiguousarray(array[index]).reshape(-1).view(np.uint8) for array in self.arrays.values()
        ]
        return np.concatenate(rows)
