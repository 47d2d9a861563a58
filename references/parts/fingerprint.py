"""Data fingerprint: digests of training and evaluation data and their overlap, taken when they are opened.

What is compared, from the sets that the loaders read:

- the files behind the two sets, by path, all of them;
- the content of samples before any augmentation. A sample of more than 4 KiB is identified by its length and its
  middle 4 KiB. A set of up to 16,384 samples is compared whole; of a larger one, 1,024 samples. Where both sets
  are larger these are neighbours in number, so that a copy in the same order is found, and one in another order
  only if it lies in the same files. At full scale the split itself is held by the digests that `prepare` checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from train_bench.task import DataFingerprint, SetFingerprint

WHOLE_SET = 16_384
SPREAD = 1_024
MIDDLE = 4_096


class Stored(Protocol):
    """Sample storage of a set, as in its files."""

    def __len__(self) -> int:
        """Number of samples."""

    def files(self) -> Sequence[Path]:
        """Files of the set."""

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,): a sample, before any augmentation; no more of it is read than is looked at."""


def fingerprint(train: Stored, evaluation: Stored, *, eval_left_out: int = 0) -> DataFingerprint:
    """The fingerprint of both sets; `eval_left_out` samples of the evaluation set count and are not read."""
    smaller = min(len(train), len(evaluation))
    train_contents, eval_contents = (
        [_digest(each.content(index)) for index in _chosen(len(each), smaller)]
        for each in (train, evaluation)
    )
    known = set(train_contents)
    return DataFingerprint(
        train=_of_set(train, train_contents, 0),
        evaluation=_of_set(evaluation, eval_contents, eval_left_out),
        files_in_common=len(set(train.files()) & set(evaluation.files())),
        samples_in_common=sum(content in known for content in eval_contents),
    )


def mapped(path: Path, kind: DTypeLike = np.uint8) -> np.ndarray:
    """The numbers of a file, which are read when they are looked at. A plain array: slices of an `np.memmap` take ten
    times as long."""
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))


def _chosen(samples: int, smaller: int) -> list[int]:
    """All numbers of a small set; of a large one those that are spread over the smaller of the two sets."""
    if samples <= WHOLE_SET:
        return list(range(samples))
    return np.linspace(0, smaller - 1, min(SPREAD, smaller)).astype(np.int64).tolist()


def _digest(content: np.ndarray) -> bytes:
    first = max(0, (len(content) - MIDDLE) // 2)
    digest = hashlib.sha256(len(content).to_bytes(8, "little"))
    digest.update(content[first : first + MIDDLE].tobytes())
    return digest.digest()


def _of_set(stored: Stored, contents: list[bytes], left_out: int) -> SetFingerprint:
    return SetFingerprint(
        samples=len(stored),
        left_out=left_out,
        compared=len(contents),
        digest=hashlib.sha256(b"".join(contents)).hexdigest(),
    )
