"""Packed examples: fixed-size rows in plain files, memory-mapped, with random access.

A folder of packed examples is

    manifest.json      format, origin, preprocessing; per split the list of its files
    train_00000.rows   rows of the type that `row_type` gives, concatenated
    train_00000.json   what it was made from, examples, bytes and sha256, written last
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.references.parts import prepared
from train_bench.references.parts.fingerprint import mapped

FORMAT = 1


def row_type(length: int, predictions: int) -> np.dtype:
    """One example, unsigned little-endian integers of 16 bits (a vocabulary has at most 65536 words):

    tokens       word ids, 0 after the end
    length       tokens without padding
    first        tokens of the first segment, [CLS] and [SEP] included
    random_next  1 where the second segment does not follow the first
    masked       how many positions are to be predicted
    positions    where they are, 0 after `masked`
    words        what stands there in truth
    """
    return np.dtype(
        [
            ("tokens", "<u2", (length,)),
            ("length", "<u2"),
            ("first", "<u2"),
            ("random_next", "<u2"),
            ("masked", "<u2"),
            ("positions", "<u2", (predictions,)),
            ("words", "<u2", (predictions,)),
        ]
    )


def write_file(
    folder: Path, name: str, chunks: Iterable[np.ndarray], made_from: Mapping[str, Any]
) -> dict[str, Any]:
    """Write rows atomically; return their manifest entry."""
    counts = {"samples": 0}

    def contents() -> Iterator[bytes]:
        for chunk in chunks:
            counts["samples"] += len(chunk)
            yield chunk.tobytes()

    return prepared.write_file(folder / f"{name}.rows", contents(), made_from, counts)


def finished(folder: Path, name: str, made_from: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return value of `write_file`, if the file is complete and its inputs are unchanged."""
    return prepared.finished(folder / f"{name}.rows", made_from)


def samples_of(manifest: Mapping[str, Any], split: str) -> int:
    """Examples of a split."""
    return sum(entry["samples"] for entry in manifest["splits"][split])


def verify(folder: Path, manifest: Mapping[str, Any], *, contents: bool) -> None:
    """Refuse missing or cut files; with `contents`, changed ones too (reads every byte)."""
    for split in prepared.SPLITS:
        for entry in manifest["splits"][split]:
            prepared.check_file(folder / f"{entry['name']}.rows", entry, contents=contents)


class Examples:
    """One split of a folder of packed examples; maps each file on first use, in each process."""

    def __init__(self, folder: Path, split: str, manifest: Mapping[str, Any], rows: np.dtype) -> None:
        entries = manifest["splits"][split]
        self._paths = [folder / f"{entry['name']}.rows" for entry in entries]
        self._ends = np.cumsum([entry["samples"] for entry in entries], dtype=np.int64)
        self.rows = rows
        self._maps: dict[int, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def files(self) -> Sequence[Path]:
        """The files of rows."""
        return self._paths

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,): the text of an example with its masked words restored, independent of the masks."""
        row = self[index]
        words = row["tokens"][: row["length"]].copy()
        words[row["positions"][: row["masked"]]] = row["words"][: row["masked"]]
        return words.view(np.uint8)

    def __getitem__(self, index: int) -> np.void:
        """The row of an example."""
        file = int(np.searchsorted(self._ends, index, side="right"))
        if file not in self._maps:
            self._maps[file] = mapped(self._paths[file], self.rows)
        return self._maps[file][index - int(self._ends[file])]
