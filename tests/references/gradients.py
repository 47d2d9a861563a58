"""Histograms of oriented gradients (Dalal and Triggs 2005), for methods that learn no features."""

from __future__ import annotations

import numpy as np

DIRECTIONS = 9
"""Of half a turn."""


def histograms(levels: np.ndarray, *, cell: int = 4) -> np.ndarray:
    """Grey levels (images, height, width), sides in whole cells -> (images, features): how strong gradients of each
    direction are in cells of `cell` x `cell` pixels, normalised over 2 x 2 cells."""
    down, across = np.gradient(levels, axis=(1, 2))
    strength, turn = np.hypot(down, across), np.arctan2(down, across) % np.pi / np.pi * DIRECTIONS
    lower = np.floor(turn).astype(int)
    share = turn - lower
    count, height, width = levels.shape
    shape = count, height // cell, cell, width // cell, cell
    found = np.zeros((count, height // cell, width // cell, DIRECTIONS))
    for direction in range(DIRECTIONS):
        part = strength * (
            (lower % DIRECTIONS == direction) * (1 - share) + ((lower + 1) % DIRECTIONS == direction) * share
        )
        found[..., direction] = part.reshape(shape).sum(axis=(2, 4))
    blocks = np.concatenate(
        [found[:, :-1, :-1], found[:, 1:, :-1], found[:, :-1, 1:], found[:, 1:, 1:]], axis=3
    )
    norms = np.sqrt((blocks**2).sum(axis=3, keepdims=True) + 1e-4)
    return (blocks / norms).reshape(count, -1)
