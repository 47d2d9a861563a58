"""Models that are fitted to the training tokens of a decoder, beside one who knows the language."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from train_bench.references.parts.decoder import grammar

MARGIN = 0.15
"""Nats that fitted models stay above a target."""

ORDERS, REACH = 6, 16


def tokens(sequences: object) -> np.ndarray:
    """A split's tokens, one sequence behind the other, without those that come twice."""
    rows = [sequences[place] for place in range(len(sequences))]  # type: ignore[index,arg-type]
    return np.concatenate([*(row[:-1] for row in rows), rows[-1][-1:]]).astype(np.int64)


def n_grams(train: np.ndarray, val: np.ndarray, vocabulary: int, orders: int = ORDERS) -> list[np.ndarray]:
    """Nats of every token of `val` but the first, to n-grams of 1, 2, ... tokens that give way to shorter ones as
    Witten and Bell (1991) have it."""
    likely = np.full(len(val), 1 / vocabulary)
    found = []
    for order in range(orders):
        seen, asked = (_contexts(one, order, vocabulary) for one in (train, val))
        pairs, times = np.unique(seen * vocabulary + train, return_counts=True)
        contexts, kinds = np.unique(pairs // vocabulary, return_counts=True)
        totals = np.bincount(np.searchsorted(contexts, seen))
        pair = _looked_up(pairs, times, asked * vocabulary + val)
        kind, total = (_looked_up(contexts, values, asked) for values in (kinds, totals))
        likely = np.where(total > 0, (pair + kind * likely) / np.maximum(total + kind, 1), likely)
        found.append(-np.log(likely[1:]))
    return found


def _contexts(stream: np.ndarray, order: int, vocabulary: int) -> np.ndarray:
    """int64: the `order` tokens before each, as one number."""
    contexts = np.zeros(len(stream), dtype=np.int64)
    for back in range(1, order + 1):
        contexts[back:] = contexts[back:] * vocabulary + stream[:-back]
    return contexts


def _looked_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)


def linear(train: np.ndarray, val: np.ndarray, vocabulary: int) -> np.ndarray:
    """Nats of every token of `val` but the first `REACH`, to a logistic regression with a weight for every token in
    each of so many places before; one epoch of Adagrad."""
    torch.manual_seed(0)
    weights = nn.EmbeddingBag(REACH * vocabulary, vocabulary, mode="sum", sparse=True)
    nn.init.zeros_(weights.weight)
    optimizer = torch.optim.Adagrad(weights.parameters(), lr=0.1)
    inputs, words = _places(train, vocabulary)
    for rows in torch.randperm(len(inputs)).split(1024):
        optimizer.zero_grad()
        functional.cross_entropy(weights(inputs[rows]), words[rows]).backward()
        optimizer.step()
    inputs, words = _places(val, vocabulary)
    with torch.no_grad():
        nats: np.ndarray = functional.cross_entropy(weights(inputs), words, reduction="none").numpy()
        return nats


def _places(stream: np.ndarray, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    windows = np.lib.stride_tricks.sliding_window_view(stream, REACH + 1)
    return torch.from_numpy(windows[:, :-1] + np.arange(REACH) * vocabulary), torch.from_numpy(
        windows[:, -1].copy()
    )


def reader(val: np.ndarray, length: int) -> np.ndarray:
    """Nats of every token of `val` but the first, to one who knows the language and sees sequences of this length."""
    rows = val[:-1].reshape(-1, length)
    ends = np.append(rows[1:, :1], val[-1:, None], axis=0)
    return np.concatenate([grammar.surprise(row.tolist()) for row in np.concatenate([rows, ends], axis=1)])
