"""Masked words by n-grams that see both sides of the gap, fitted to every word of the training examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from train_bench.references.bert import packed
from train_bench.references.bert.examples import MASK, SPECIAL

REACH = 2
"""Words on either side that n-grams look at, as they are visible: some are [MASK]."""

CHUNK = 2048
"""Gaps whose distributions are in memory at once."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """int64 words (gaps,), what is visible in their places (gaps,), and around them (gaps, 2 * reach); in which
    example they are (gaps,) and where in it (gaps,)."""

    words: np.ndarray
    visible: np.ndarray
    around: np.ndarray
    examples: np.ndarray
    places: np.ndarray

    def part(self, rows: slice) -> Gaps:
        """Some of them."""
        return Gaps(
            self.words[rows], self.visible[rows], self.around[rows], self.examples[rows], self.places[rows]
        )


def gaps(examples: packed.Examples, *, masked_only: bool, reach: int = REACH) -> Gaps:
    """The masked words of examples, or all of their words."""
    words, visible, around, places = [], [], [], []
    for index in range(len(examples)):
        row = examples[index]
        tokens = row["tokens"].astype(np.int64)
        truth = tokens.copy()
        masked = row["positions"][: row["masked"]].astype(np.int64)
        truth[masked] = row["words"][: row["masked"]]
        positions = masked if masked_only else np.flatnonzero(truth >= SPECIAL)
        padded = np.pad(tokens, reach)
        words.append(truth[positions])
        visible.append(tokens[positions])
        shifts = [shift for shift in range(2 * reach + 1) if shift != reach]
        around.append(np.stack([padded[positions + shift] for shift in shifts], axis=1))
        places.append(positions)
    numbers = np.repeat(np.arange(len(places)), [len(found) for found in places])
    return Gaps(*map(np.concatenate, (words, visible, around)), numbers, np.concatenate(places))


class Counts:
    """How often each word stood in each context."""

    def __init__(self, train: Gaps, columns: Sequence[int], vocabulary: int) -> None:
        self._columns, self._vocabulary = list(columns), vocabulary
        self._known, rows = np.unique(self._contexts(train), return_inverse=True)
        shape = len(self._known), vocabulary
        self._counts = sparse.csr_matrix((np.ones(len(rows)), (rows, train.words)), shape=shape)

    def _contexts(self, places: Gaps) -> np.ndarray:
        contexts = np.zeros(len(places.words), dtype=np.int64)
        for column in self._columns:
            contexts = contexts * self._vocabulary + places.around[:, column]
        return contexts

    def given(self, places: Gaps, below: np.ndarray) -> np.ndarray:
        """float64 (gaps, vocabulary): probabilities that give way to those of a shorter context, `below`, as
        Witten and Bell (1991) have it: the more, the more different words have followed."""
        contexts = self._contexts(places)
        rows = np.minimum(np.searchsorted(self._known, contexts), len(self._known) - 1)
        seen = (self._known[rows] == contexts)[:, None]
        counts = self._counts[rows].toarray() * seen
        kinds = np.maximum((counts > 0).sum(axis=1, keepdims=True), 1)
        return (counts + kinds * below) / (counts.sum(axis=1, keepdims=True) + kinds)


def accuracies(train: packed.Examples, val: packed.Examples, vocabulary: int) -> dict[str, float]:
    """Share of the masked words of `val` that are most likely to each model, by its name. `and kept` answers with
    the word that stands in the place where it is not [MASK]; half of these are right."""
    known, unknown = gaps(train, masked_only=False), gaps(val, masked_only=True)
    once = np.bincount(known.words, minlength=vocabulary) / len(known.words)
    sides = {
        "left": [Counts(known, columns, vocabulary) for columns in ([1], [0, 1])],
        "right": [Counts(known, columns, vocabulary) for columns in ([2], [2, 3])],
    }
    both = Counts(known, [1, 2], vocabulary)
    right: dict[str, int] = {}
    for start in range(0, len(unknown.words), CHUNK):
        part = unknown.part(slice(start, start + CHUNK))
        unigram = np.broadcast_to(once, (len(part.words), vocabulary))
        found = {"unigram": unigram}
        for side, (near, far) in sides.items():
            found[f"{side} bigram"] = near.given(part, unigram)
            found[f"{side} trigram"] = far.given(part, found[f"{side} bigram"])
        for order in ("bigram", "trigram"):
            product = found[f"left {order}"] * found[f"right {order}"] / np.maximum(once, 1e-9)
            found[f"left and right {order}"] = product / product.sum(axis=1, keepdims=True)
        found["both neighbours"] = both.given(part, found["left and right trigram"])
        for name, chances in found.items():
            said = chances.argmax(axis=1)
            for whole, words in ((name, said), (f"{name} and kept", or_kept(part, said))):
                right[whole] = right.get(whole, 0) + int((words == part.words).sum())
    return {name: hits / len(unknown.words) for name, hits in right.items()}


def or_kept(gaps: Gaps, said: np.ndarray) -> np.ndarray:
    """What a model says, but the word that stands in the place where it is not [MASK]; half of these are right."""
    return np.where(gaps.visible == MASK, said, gaps.visible)
