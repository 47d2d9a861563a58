"""Packed images: a few large files with random access, each with an index and a digest.

A folder of shards is

    manifest.json                 format, encoding, classes; per split the list of its shards
    <split>/00000.bin             records one after the other
    <split>/00000.npy             int64 (samples, 4): offset, image bytes, label, number of object boxes
    <split>/00000.json            samples, sizes and sha256 of the two, written last

A record is its object boxes (float32, four each: x_min, y_min, x_max, y_max as shares of the image) and
then the image: encoded bytes as they were, or raw uint8 pixels of one shape for all. Numbers are
little-endian, so a digest holds on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from train_bench.core import files
from train_bench.errors import RequestError, WriteError
from train_bench.references.parts import prepared
from train_bench.references.parts.fingerprint import Stored, mapped
from train_bench.references.resnet.pixels import as_rgb, decode

FORMAT = 1
BOX_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One image to be packed: encoded or raw bytes, its label from 0, and (n, 4) object boxes."""

    content: bytes
    label: int
    boxes: np.ndarray


class Images(Stored, Protocol):
    """Examples of one split by position; `labels` is int64 (samples,)."""

    labels: np.ndarray

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """uint8 (height, width, 3) pixels and (n, 4) object boxes."""


def shard_path(folder: Path, split: str, number: int) -> Path:
    """The record file of a shard; index and digest are in the same folder."""
    return folder / split / f"{number:05d}.bin"


def write_shard(path: Path, examples: Iterable[Example]) -> dict[str, Any]:
    """Pack `examples` into one shard atomically. Holds one image in memory."""
    index: list[tuple[int, int, int, int]] = []
    digest = hashlib.sha256()
    offset = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.whole_file(path) as file:
            for example in examples:
                record = example.boxes.astype("<f4").tobytes() + example.content
                index.append((offset, len(example.content), example.label, len(example.boxes)))
                digest.update(record)
                offset += file.write(record)
            table = np.array(index, dtype="<i8").reshape(-1, 4)
            digest.update(table.tobytes())
            with files.whole_file(path.with_suffix(".npy")) as positions:
                np.save(positions, table, allow_pickle=False)
    except OSError as error:
        raise WriteError(
            f"{path} cannot be written: {error.strerror or error}. Shards that are finished are kept; "
            "make room and prepare again to continue."
        ) from error
    entry = {"samples": len(index), "bytes": offset, "sha256": digest.hexdigest()}
    files.write_json(path.with_suffix(".json"), entry)
    return entry


def finished(path: Path, samples: int) -> dict[str, Any] | None:
    """Return value of `write_shard` for `path`, if that shard is complete and has `samples` images."""
    note = path.with_suffix(".json")
    if not (note.exists() and path.exists()):
        return None
    entry = files.read_json(note)
    whole = entry["samples"] == samples and entry["bytes"] == path.stat().st_size
    return entry if whole else None


def count(manifest: Mapping[str, Any], split: str) -> int:
    """Number of images of a split."""
    return sum(entry["samples"] for entry in manifest["splits"][split])


def verify(folder: Path, manifest: Mapping[str, Any], *, contents: bool) -> None:
    """Refuse missing or cut shards; with `contents`, changed ones too (reads every byte)."""
    for split in prepared.SPLITS:
        for number, entry in enumerate(manifest["splits"][split]):
            path = shard_path(folder, split, number)
            size = prepared.size(path)
            if size != entry["bytes"] or not path.with_suffix(".npy").exists():
                raise RequestError(
                    f"{path} has {size} of {entry['bytes']} bytes or lacks its index; "
                    f"remove {folder} and prepare again."
                )
            if contents and _digest(path) != entry["sha256"]:
                raise RequestError(
                    f"{path} is corrupt: its sha256 is not the one of {folder / prepared.MANIFEST}; "
                    f"remove {folder} and prepare again."
                )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for block in _blocks(path):
        digest.update(block)
    digest.update(_table(path).tobytes())
    return digest.hexdigest()


def _blocks(path: Path, size: int = 1 << 20) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(size):
            yield block


def _table(path: Path) -> np.ndarray:
    try:
        return np.load(path.with_suffix(".npy"), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise RequestError(f"The index of {path} is corrupt; remove its folder and prepare again.") from error


class ShardedImages:
    """One split of a folder of shards, memory-mapped; opens each file on first use, in each process."""

    def __init__(self, folder: Path, split: str, manifest: Mapping[str, Any]) -> None:
        numbers = range(len(manifest["splits"][split]))
        self._paths = [shard_path(folder, split, number) for number in numbers]
        self._shape: list[int] | None = manifest["shape"]
        tables = [_table(path) for path in self._paths]
        self._table = np.concatenate(tables) if tables else np.zeros((0, 4), dtype=np.int64)
        self._shard = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        self._maps: dict[int, np.ndarray] = {}
        self.labels = self._table[:, 2].astype(np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    def __len__(self) -> int:
        return len(self._table)

    def files(self) -> Sequence[Path]:
        """The shards."""
        return self._paths

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,): encoded or raw, without boxes."""
        return self._record(index)[1]

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        boxes, content = self._record(index)
        of_image = boxes.view("<f4").reshape(-1, 4)
        if self._shape is None:
            return decode(content.tobytes()), of_image
        return as_rgb(content.reshape(self._shape)), of_image

    def _record(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """uint8: the boxes and the content of an example."""
        offset, length, _, boxes = self._table[index].tolist()
        shard, start = self._map(int(self._shard[index])), offset + boxes * BOX_BYTES
        return shard[offset:start], shard[start : start + length]

    def _map(self, number: int) -> np.ndarray:
        if number not in self._maps:
            self._maps[number] = mapped(self._paths[number])
        return self._maps[number]
