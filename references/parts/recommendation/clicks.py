"""Generated click logs: a hidden model over skewed categories and dense features draws the clicks.

All of it is made of whole numbers, so that the digest of the records holds on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

SEED = 1
BLOCK = 1 << 16
"""Samples that are generated at once."""

LATENT = 3
STRENGTH = 3
"""Weight of what a pair of categories says together, against what each says alone."""

TURNS = 0
"""Value of the first dense feature with which every pair says the opposite."""

COUNTS = 30
"""Dense features are below this."""

LEVELS = (1, 4, 12)
"""A dense feature matters by how many of these it passes."""

NOISE = 6
THRESHOLD = 14


def clicks(samples: int, split: int, dense_features: int, table_rows: Sequence[int]) -> Iterator[np.ndarray]:
    """Blocks of int32 records (n, columns). Splits are different draws from the same hidden model."""
    hidden = np.random.default_rng([SEED, 0])
    alone = [hidden.integers(-2, 3, rows) for rows in table_rows]
    latent = [_balanced(hidden.integers(-1, 2, ((rows + 1) // 2, LATENT)))[:rows] for rows in table_rows]
    weights = hidden.integers(-2, 3, dense_features)
    rng = np.random.default_rng([SEED, 1, split])
    for first in range(0, samples, BLOCK):
        count = min(BLOCK, samples - first)
        dense = _skewed(rng.random((count, dense_features)), np.full(dense_features, COUNTS))
        rows = _skewed(rng.random((count, len(table_rows))), np.asarray(table_rows))
        score = np.searchsorted(LEVELS, dense) @ weights
        sign = np.where(dense[:, 0] == TURNS, -STRENGTH, STRENGTH)
        total = np.zeros((count, LATENT), dtype=np.int64)
        for table in range(len(table_rows)):
            vectors = latent[table][rows[:, table]]
            score += alone[table][rows[:, table]] + sign * (total * vectors).sum(axis=1)
            total += vectors
        noise = rng.integers(-NOISE, NOISE + 1, (count, 4)).sum(axis=1)
        clicked = score + noise > THRESHOLD
        yield np.column_stack([clicked, dense, rows]).astype(np.int32)


def _balanced(vectors: np.ndarray) -> np.ndarray:
    """Each vector, followed by its negative: the pairs of a feature then average to zero, so that the popularity of a
    category carries its own effect alone."""
    return np.stack([vectors, -vectors], axis=1).reshape(-1, vectors.shape[1])


def _skewed(uniform: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 to below `ends`, low ones more often: products are the same on every machine,
    powers are not."""
    return (uniform * uniform * ends).astype(np.int64)
