"""Prepared tokens: streams of whole documents in plain files, memory-mapped and cut into sequences.

A folder of tokens is

    manifest.json        format, what they were made with; per split the list of its files
    train_00000.tokens   documents, concatenated: unsigned little-endian integers
    train_00000.json     what it was made from, documents, tokens, bytes and sha256, written last
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.references.parts import prepared
from train_bench.references.parts.fingerprint import mapped

FORMAT = 1


def token_type(vocabulary: int) -> np.dtype:
    """16 bits if they hold every token, else 32."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


def write_file(
    folder: Path, name: str, documents: Iterable[np.ndarray], kind: np.dtype, made_from: Mapping[str, Any]
) -> dict[str, Any]:
    """Save documents atomically and return their manifest entry."""
    counts = {"documents": 0, "tokens": 0}

    def contents() -> Iterator[bytes]:
        for document in documents:
            counts["documents"] += 1
            counts["tokens"] += len(document)
            yield document.astype(kind).tobytes()

    return prepared.write_file(folder / f"{name}.tokens", contents(), made_from, counts)


def finished(folder: Path, name: str, made_from: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return value of `write_file`, if the file is complete and its inputs are unchanged."""
    return prepared.finished(folder / f"{name}.tokens", made_from)


def sequences_of(entries: Sequence[Mapping[str, Any]], length: int) -> int:
    """Sequences in these files; each needs one more token as the last target."""
    return max(0, sum(entry["tokens"] for entry in entries) - 1) // length


def verify(folder: Path, manifest: Mapping[str, Any], *, contents: bool) -> None:
    """Refuse missing or cut files; with `contents`, changed ones too (reads every byte)."""
    for split in prepared.SPLITS:
        for entry in manifest["splits"][split]:
            prepared.check_file(folder / f"{entry['name']}.tokens", entry, contents=contents)


class Sequences:
    """The first `count` sequences of `length` tokens of one split's stream, which goes on from file to file. Maps each
    file when it is first needed, in whichever process needs it."""

    def __init__(
        self, folder: Path, entries: Sequence[Mapping[str, Any]], kind: np.dtype, *, length: int, count: int
    ) -> None:
        self.length, self.count = length, count
        self._paths = [folder / f"{entry['name']}.tokens" for entry in entries]
        self._ends = np.cumsum([entry["tokens"] for entry in entries], dtype=np.int64)
        self._kind = kind
        self._maps: dict[int, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    def __len__(self) -> int:
        return self.count

    def files(self) -> Sequence[Path]:
        """The files of tokens."""
        return self._paths

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,): a sequence without its last target, which is the next sequence's first token."""
        return self[index][:-1].view(np.uint8)

    def __getitem__(self, index: int) -> np.ndarray:
        """(length + 1,): a sequence and its last target."""
        place, stop = index * self.length, (index + 1) * self.length + 1
        pieces = []
        while place < stop:
            file = int(np.searchsorted(self._ends, place, side="right"))
            if file not in self._maps:
                self._maps[file] = mapped(self._paths[file], self._kind)
            first = int(self._ends[file - 1]) if file else 0
            piece = self._maps[file][place - first : stop - first]
            pieces.append(piece)
            place += len(piece)
        return np.concatenate(pieces)
