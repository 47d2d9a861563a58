"""Reader of Megatron's tokenized files: NAME.idx indexes the documents in NAME.bin.

An index is, all little-endian,

    9 bytes of magic, uint64 version (1), uint8 kind of token, uint64 sequences S, uint64 D
    int32 lengths (S,), int64 places in bytes (S,), int64 the first sequence of each document, then S (D,)

of text, where a document is one sequence, D is S + 1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_bench.errors import RequestError

MAGIC = b"MMIDIDX\x00\x00"
HEAD = struct.Struct("<9sQBQQ")
KINDS = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Kinds of tokens that are whole numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Document index of a file; `kind` is the type of its tokens, `lengths` is mapped, int32 (documents,)."""

    tokens: Path
    kind: np.dtype
    lengths: np.ndarray


def read(index: Path) -> Index:
    """The index of a file, held against the size of its tokens."""
    size, tokens = index.stat().st_size, index.with_suffix(".bin")
    with index.open("rb") as file:
        head = file.read(HEAD.size)
    if len(head) < HEAD.size or head[: len(MAGIC)] != MAGIC:
        raise RequestError(
            f"{index} is not a Megatron index: it does not begin with {MAGIC!r}. Fetch it again."
        )
    _, version, code, count, documents = HEAD.unpack(head)
    if version != 1 or code not in KINDS:
        raise RequestError(
            f"{index} has version {version} and tokens of kind {code}; allowed are version 1 and kinds "
            f"{', '.join(map(str, KINDS))}."
        )
    due = HEAD.size + 12 * count + 8 * documents
    if size < due or documents != count + 1:
        raise RequestError(
            f"{index} has {size} bytes, {count} sequences and {documents} bounds of documents; {due} bytes and "
            f"{count + 1} bounds are needed, a sequence each. Fetch it again."
        )
    kind = np.dtype(KINDS[code])
    lengths = (
        np.memmap(index, dtype="<i4", mode="r", offset=HEAD.size, shape=(count,)) if count else np.zeros(0)
    )
    total = int(lengths.sum(dtype=np.int64)) * kind.itemsize
    held = tokens.stat().st_size if tokens.is_file() else 0
    if count == 0 or lengths.min() < 1 or held != total:
        raise RequestError(
            f"{index} tells of {count} documents with {total} bytes in all, the shortest of "
            f"{lengths.min() if count else 0} tokens; {tokens} has {held} bytes. Documents have at least one token. "
            "Fetch both again."
        )
    return Index(tokens=tokens, kind=kind, lengths=lengths)


def pieces(index: Index, largest: int) -> list[tuple[int, int]]:
    """Ranges of documents with at most `largest` tokens each, or with one document."""
    ends = np.cumsum(index.lengths, dtype=np.int64)
    found, first = [], 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + largest, side="right")))
        found.append((first, last))
        first = last
    return found


def documents(index: Index, first: int, last: int, *, vocabulary: int) -> Iterator[np.ndarray]:
    """Documents of a range, unchanged."""
    place = int(index.lengths[:first].sum(dtype=np.int64))
    held = np.memmap(index.tokens, dtype=index.kind, mode="r")
    for number in range(first, last):
        document = np.asarray(held[place : place + int(index.lengths[number])]).astype(np.int64)
        place += len(document)
        if document.min() < 0 or document.max() >= vocabulary:
            raise RequestError(
                f"{index.tokens}, document {number}: tokens from {document.min()} to {document.max()}; allowed are 0 "
                f"to {vocabulary - 1}. It was made with another tokenizer."
            )
        yield document
