"""Examples from documents: pairs of segments, statically masked before training.

The procedure is that of the benchmark's reference, which makes the examples of Wikipedia in advance; theirs
come ready-made (`sources.py`), these functions are for text of another origin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from train_bench.references.bert import packed
from train_bench.references.bert.config import Data

PAD, UNKNOWN, CLS, SEP, MASK = range(5)
"""Word ids of our own vocabularies below the first word."""

SPECIAL = 5
SHORT_SHARE = 0.1
"""Probability that a document's examples are shorter than they could be."""

Sentence = Sequence[int]
Document = Sequence[Sentence]


def pack(documents: Sequence[Document], data: Data, vocabulary: int, seed: int, copies: int) -> np.ndarray:
    """`copies` rounds over all documents, each with other cuts, pairs and masks, as shuffled rows."""
    rng = Random(seed)
    rows = [
        _row(first, second, random_next, data, vocabulary, rng)
        for _ in range(copies)
        for index in range(len(documents))
        for first, second, random_next in _pairs(documents, index, data.sequence_length - 3, rng)
    ]
    rng.shuffle(rows)
    return np.array(rows, dtype=packed.row_type(data.sequence_length, data.predictions))


def _pairs(
    documents: Sequence[Document], index: int, room: int, rng: Random
) -> Iterator[tuple[list[int], list[int], bool]]:
    """(first segment, second segment, whether the second is random) with `room` tokens together at most."""
    document = documents[index]
    wanted = rng.randint(2, room) if rng.random() < SHORT_SHARE else room
    chunk: list[Sentence] = []
    at = 0
    while at < len(document):
        chunk.append(document[at])
        at += 1
        if at < len(document) and sum(map(len, chunk)) < wanted:
            continue
        split = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        first = _joined(chunk[:split])
        random_next = len(chunk) == 1 or rng.random() < 0.5
        if random_next:
            at -= len(chunk) - split  # sentences after the split go into the next example
            second = _elsewhere(documents, index, wanted - len(first), rng)
        else:
            second = _joined(chunk[split:])
        _cut(first, second, room, rng)
        yield first, second, random_next
        chunk = []


def _elsewhere(documents: Sequence[Document], index: int, wanted: int, rng: Random) -> list[int]:
    """Sentences from a random place of a random other document, until there are `wanted` tokens."""
    other = documents[(index + rng.randint(1, len(documents) - 1)) % len(documents)]
    text: list[int] = []
    for sentence in other[rng.randint(0, len(other) - 1) :]:
        text.extend(sentence)
        if len(text) >= wanted:
            break
    return text


def _cut(first: list[int], second: list[int], room: int, rng: Random) -> None:
    """Shorten the longer of two segments at a random end until both fit."""
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        longer.pop(0 if rng.random() < 0.5 else -1)


def _joined(sentences: Sequence[Sentence]) -> list[int]:
    return list(itertools.chain.from_iterable(sentences))


def _row(
    first: list[int], second: list[int], random_next: bool, data: Data, vocabulary: int, rng: Random
) -> tuple:
    """A row of `packed.row_type`, masked: of the chosen words 80 % become [MASK], 10 % a random word, 10 %
    stay."""
    tokens = [CLS, *first, SEP, *second, SEP]
    candidates = [place for place, token in enumerate(tokens) if token >= SPECIAL]
    rng.shuffle(candidates)
    count = min(data.predictions, max(1, round(data.masked_share * len(tokens))))
    positions = sorted(candidates[:count])
    words = [tokens[place] for place in positions]
    for place in positions:
        draw = rng.random()
        if draw < 0.8:
            tokens[place] = MASK
        elif draw < 0.9:
            tokens[place] = rng.randrange(SPECIAL, vocabulary)
    return (
        _padded(tokens, data.sequence_length),
        len(tokens),
        len(first) + 2,
        int(random_next),
        len(positions),
        _padded(positions, data.predictions),
        _padded(words, data.predictions),
    )


def _padded(values: list[int], length: int) -> list[int]:
    return values + [PAD] * (length - len(values))
