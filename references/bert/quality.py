"""Masked-language-model accuracy."""

from __future__ import annotations

import torch
from torch import Tensor


def count_words(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    """int64 (3,): words that are the most likely ones, words with weight 1, examples with logits that are not
    finite. `logits` is (samples, predictions, vocabulary), `words` and `weights` (samples, predictions).

    Masked words count alike wherever they stand: the accuracy is the quotient of sums over all batches and
    ranks, not a mean of quotients.
    """
    real = weights > 0
    right = (logits.argmax(dim=2) == words) & real
    broken = ~torch.isfinite(logits).flatten(1).all(dim=1)
    return torch.stack([right.sum(), real.sum(), broken.sum()])
