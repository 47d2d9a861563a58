"""Target language of the adapters: that of `parts/decoder/grammar.py` with the words for subjects swapped in pairs.

A subject takes the verbs of its neighbour. All else is as it was, so that what is known of the language holds but for
what twelve words mean. A document whose subject is not visible is the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

import numpy as np

from train_bench.references.parts.decoder import grammar

VERB_OF: Sequence[Sequence[int]] = [grammar.VERB_OF[subject ^ 1] for subject in range(grammar.SUBJECTS)]

SEEDS = {"train": 20250601, "val": 20250602}


def sequences(count: int, length: int, seed: int, verb_of: Sequence[Sequence[int]] = VERB_OF) -> np.ndarray:
    """int32 (count, length): documents with their ends, concatenated and cut at full sequences."""
    tokens = chain.from_iterable(grammar.documents(count * length, seed, verb_of))
    return np.fromiter(islice(tokens, count * length), dtype=np.int32).reshape(count, length)
