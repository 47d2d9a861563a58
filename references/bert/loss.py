"""Pretraining loss: cross entropy of masked words and of next-sentence prediction."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from train_bench.references.bert.model import Logits

SMOOTHING = 1e-5
"""Keeps the mean over masked words finite where there is none."""


def pretraining_loss(logits: Logits, words: Tensor, weights: Tensor, random_next: Tensor) -> Tensor:
    """The mean over masked words, sum(w nll) / (sum(w) + 1e-5), plus the mean over segment pairs.

    words, weights: (samples, predictions), int64 and float32, weight 0 for padding; random_next: int64
    (samples,). The mean over words is that of the local batch, as in the reference: ranks with fewer masked
    words count as much as others.
    """
    nll = functional.cross_entropy(logits.words.float().flatten(0, 1), words.flatten(), reduction="none")
    flat = weights.flatten()
    masked = (nll * flat).sum() / (flat.sum() + SMOOTHING)
    return masked + functional.cross_entropy(logits.sentences.float(), random_next)
