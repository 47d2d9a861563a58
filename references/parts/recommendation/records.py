"""Prepared click logs: one memory-mapped file of records per split.

A folder of records is

    manifest.json   format, origin, table rows; per split the number of samples, bytes and sha256
    train.bin       records in the order of preparation, which for training is shuffled
    val.bin

A record is its label, its dense features and its categorical features as little-endian int32, so a digest
holds on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.core import files
from train_bench.errors import RequestError, WriteError
from train_bench.references.parts import prepared
from train_bench.references.parts.fingerprint import mapped
from train_bench.references.parts.recommendation.config import Model

FORMAT = 1
DTYPE = np.dtype("<i4")


def columns(model: Model) -> int:
    """Numbers in a record."""
    return 1 + model.dense_features + len(model.table_rows)


def split_path(folder: Path, split: str) -> Path:
    """The records of a split."""
    return folder / f"{split}.bin"


def write_split(folder: Path, split: str, blocks: Iterable[np.ndarray], model: Model) -> dict[str, Any]:
    """Write blocks of int32 records (n, columns) atomically and return their manifest entry. Holds one block in
    memory."""
    path = split_path(folder, split)
    digest, samples = hashlib.sha256(), 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files.whole_file(path) as file:
            for block in blocks:
                refuse_bad(block, model, f"the source of {path.name}", samples)
                content = np.ascontiguousarray(block, dtype=DTYPE).tobytes()
                digest.update(content)
                file.write(content)
                samples += len(block)
    except OSError as error:
        raise WriteError(
            f"{path} cannot be written: {error.strerror or error}. Make room and prepare again to continue."
        ) from error
    return {
        "samples": samples,
        "bytes": samples * columns(model) * DTYPE.itemsize,
        "sha256": digest.hexdigest(),
    }


def refuse_bad(block: np.ndarray, model: Model, where: str, first: int) -> None:
    """Refuse records (n, columns) that the model cannot take: a label other than 0 and 1, a dense feature below
    0, a category beyond its table. `first` is the number of the first record in `where`."""
    wrong = (block < 0) | (block > _limits(model))
    if not wrong.any():
        return
    record, column = (int(number) for number in np.argwhere(wrong)[0])
    value, dense = int(block[record, column]), model.dense_features
    if column == 0:
        what = f"the label {value}; allowed are 0 and 1"
    elif column <= dense:
        what = f"{value} as dense feature {column}; allowed is 0 and above"
    else:
        table = column - dense - 1
        what = (
            f"{value} as categorical feature {table + 1}; its table has {model.table_rows[table]} rows from 0"
        )
    raise RequestError(f"Record {first + record} of {where} has {what}. Prepare the data again.")


def _limits(model: Model) -> np.ndarray:
    """int32 (columns,): the largest values of a record, which begin at 0."""
    limits = np.full(columns(model), np.iinfo(np.int32).max, dtype=np.int32)
    limits[0] = 1
    limits[1 + model.dense_features :] = np.asarray(model.table_rows) - 1
    return limits


def content_digest(manifest: Mapping[str, Any]) -> str:
    """Digest over all records of all splits."""
    hashes = [manifest["splits"][split]["sha256"] for split in prepared.SPLITS]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def verify(folder: Path, manifest: Mapping[str, Any], *, contents: bool) -> None:
    """Refuse missing or cut files; with `contents`, changed ones too (reads every byte)."""
    for split in prepared.SPLITS:
        prepared.check_file(split_path(folder, split), manifest["splits"][split], contents=contents)


class Records:
    """One split of a folder of records, mapped on first read, in each process.

    With `permuted`, a sample has the label of the one half the split further on.
    """

    def __init__(self, folder: Path, split: str, manifest: Mapping[str, Any], model: Model) -> None:
        self._path = split_path(folder, split)
        self._samples: int = manifest["splits"][split]["samples"]
        self._model = model
        self._unsigned_limits = _limits(model).view(np.uint32)
        self._map: np.ndarray | None = None
        self.permuted = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None}

    def __len__(self) -> int:
        return self._samples

    def files(self) -> list[Path]:
        """The file of records."""
        return [self._path]

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,) of a record, label and all."""
        return self._mapped()[index].view(np.uint8)

    def _mapped(self) -> np.ndarray:
        if self._map is None:
            self._map = mapped(self._path, DTYPE).reshape(self._samples, columns(self._model))
        return self._map

    def read(self, first: int, count: int) -> np.ndarray:
        """int32 (count, columns), checked."""
        records = self._mapped()
        block = np.array(records[first : first + count])
        if self.permuted:
            others = (np.arange(first, first + count) + self._samples // 2) % self._samples
            block[:, 0] = records[others, 0]
        if (block.view(np.uint32) > self._unsigned_limits).any():  # what is below 0 is large without a sign
            refuse_bad(block, self._model, str(self._path), first)
        return block
