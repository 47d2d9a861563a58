"""Generated interactions: users, each with two hidden traits, choose items by trait and popularity."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from train_bench.references.parts import arrays

from .config import Config

TRAITS, CHOSEN, NEGATIVES, CANDIDATES = 8, 20, 4, 100
"""Values of a trait; chosen items of a user in training, and others for each of them; items in an evaluation."""


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Write the interactions; returns at once if `folder` is complete."""
    if not arrays.is_written(config, folder):
        arrays.write(config, folder, interactions(config.model.users, config.model.items))


def interactions(users: int, items: int) -> dict[str, dict[str, np.ndarray]]:
    """train: `items`, `users` int64 (n,), and `labels` float32 (n,), 1 where the item was chosen. val: `candidates`
    int64 (users, CANDIDATES), `labels` int64 (users,), the place of the chosen one, and `users` int64 (users,)."""
    rng = np.random.default_rng(0)
    liked = rng.random((TRAITS, TRAITS, TRAITS)) < 0.25
    first, second = rng.integers(0, TRAITS, (2, users))
    likes = liked[first, second][:, rng.integers(0, TRAITS, items)]
    weight = np.where(likes, 1.0, 0.03) * rng.uniform(0.2, 1.0, items)
    order = np.argsort(rng.gumbel(size=(users, items)) + np.log(weight), axis=1)[:, ::-1]
    chosen, others = order[:, : CHOSEN + 1], rng.permuted(order[:, CHOSEN + 1 :], axis=1)
    negatives = others[:, : CHOSEN * NEGATIVES]
    known = np.concatenate([chosen[:, 1:], negatives], axis=1)
    labels = np.zeros(known.shape, dtype=np.float32)
    labels[:, :CHOSEN] = 1.0
    train = {
        "items": known.ravel(),
        "labels": labels.ravel(),
        "users": np.repeat(np.arange(users), known.shape[1]),
    }
    place = rng.integers(0, CANDIDATES, users)
    candidates = rng.permuted(order[:, CHOSEN + 1 :], axis=1)[:, :CANDIDATES]
    candidates[np.arange(users), place] = chosen[:, 0]
    return {"train": train, "val": {"candidates": candidates, "labels": place, "users": np.arange(users)}}
