"""Prepared utterances: samples of many concatenated, with random access.

A folder of recordings is

    manifest.json          format, origin, sampling rate, vocabulary; per split the number of its packs
    train_00000.pcm        int16, little-endian, one channel
    train_00000.json       per utterance its name, samples and transcript; size and sha256 of the samples
    tokens_train_00000.json  per utterance the numbers of its symbols
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from train_bench.core import files
from train_bench.errors import RequestError, WriteError
from train_bench.references.parts import prepared
from train_bench.references.parts.fingerprint import mapped

FORMAT = 1


class Utterance(NamedTuple):
    """int16 (n,) samples, the transcript, and a name for error messages."""

    name: str
    samples: np.ndarray
    transcript: str


def pack_path(folder: Path, split: str, number: int) -> Path:
    """Path of a pack's samples."""
    return folder / f"{split}_{number:05d}.pcm"


def tokens_path(folder: Path, split: str, number: int) -> Path:
    """Path of the symbol numbers of its transcripts."""
    return folder / f"tokens_{split}_{number:05d}.json"


def write_pack(path: Path, utterances: Iterable[Utterance]) -> dict[str, Any]:
    """Save a pack atomically, one utterance in memory at a time, and return its manifest entry."""
    digest, size = hashlib.sha256(), 0
    entries = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.whole_file(path) as file:
            for name, samples, transcript in utterances:
                content = samples.astype("<i2", copy=False).tobytes()
                file.write(content)
                digest.update(content)
                size += len(content)
                entries.append([name, len(samples), transcript])
    except OSError as error:
        raise WriteError(
            f"{path} cannot be written: {error.strerror or error}. Packs that are finished are kept; make room "
            "and prepare again to continue."
        ) from error
    note = {"bytes": size, "sha256": digest.hexdigest(), "utterances": entries}
    files.write_json(path.with_suffix(".json"), note)
    return note


def finished(path: Path, names: list[str]) -> dict[str, Any] | None:
    """Return value of `write_pack` for a pack, if it is complete and holds the utterances of these names."""
    note = path.with_suffix(".json")
    if not note.exists():
        return None
    entry = files.read_json(note)
    whole = prepared.size(path) == entry["bytes"] and [name for name, _, _ in entry["utterances"]] == names
    return entry if whole else None


def read_notes(folder: Path, manifest: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The note of every pack, by split."""
    return {
        split: [
            files.read_json(pack_path(folder, split, number).with_suffix(".json"))
            for number in range(manifest["packs"][split])
        ]
        for split in prepared.SPLITS
    }


def content_digest(notes: Mapping[str, list[dict[str, Any]]]) -> str:
    """Digest over all samples and transcripts."""
    digest = hashlib.sha256()
    for split in prepared.SPLITS:
        for note in notes[split]:
            digest.update(note["sha256"].encode())
            for name, count, transcript in note["utterances"]:
                digest.update(f"{name}\t{count}\t{transcript}\n".encode())
    return digest.hexdigest()


def verify(folder: Path, notes: Mapping[str, list[dict[str, Any]]], *, contents: bool) -> None:
    """Refuse missing or cut packs; with `contents`, changed ones too (reads every byte)."""
    for split in prepared.SPLITS:
        for number, note in enumerate(notes[split]):
            prepared.check_file(pack_path(folder, split, number), note, contents=contents)


class Recordings:
    """One split of a folder of recordings, memory-mapped; opens each pack on first use, in each process. Utterances of
    more than `most_samples` samples are left out."""

    def __init__(
        self, folder: Path, split: str, notes: list[dict[str, Any]], *, most_samples: float = float("inf")
    ) -> None:
        self._folder, self._split, self._packs = folder, split, len(notes)
        rows = []
        self.tokens: list[list[int]] = []
        for number, note in enumerate(notes):
            first, read = 0, files.read_json(tokens_path(folder, split, number))
            for (_, count, _), tokens in zip(note["utterances"], read, strict=True):
                if count <= most_samples:
                    rows.append((number, first, count))
                    self.tokens.append(tokens)
                first += count
        self._places = np.array(rows, dtype=np.int64).reshape(-1, 3)
        self._maps: dict[int, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def lengths(self) -> np.ndarray:
        """int64 (utterances,): samples of each."""
        return self._places[:, 2]

    def files(self) -> list[Path]:
        """The packs."""
        return [pack_path(self._folder, self._split, number) for number in range(self._packs)]

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,) of an utterance."""
        return self.samples(index).view(np.uint8)

    def samples(self, index: int) -> np.ndarray:
        """int16 (n,)."""
        number, first, count = self._places[index]
        if number not in self._maps:
            path = pack_path(self._folder, self._split, int(number))
            try:
                self._maps[number] = mapped(path, "<i2")
            except (OSError, ValueError) as error:
                raise RequestError(
                    f"{path} cannot be read: {error}. Remove {self._folder} and prepare again."
                ) from error
        return self._maps[number][first : first + count]
