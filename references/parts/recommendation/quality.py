"""Area under the ROC curve (AUC), exact, over samples distributed over ranks."""

from __future__ import annotations

import numpy as np
import torch

from train_bench.parallel import Parallel

CHUNK = 1 << 20
"""Positive samples that are compared at once; bounds the memory of the comparison to 16 MiB."""


def roc_auc(scores: np.ndarray, labels: np.ndarray, parallel: Parallel) -> float:
    """Share of the pairs of a positive and a negative sample, over all ranks, whose positive has the higher
    score; a tie counts one half (the exact definition, with the ties of scikit-learn's roc_auc_score).

    scores float32 (n,), labels bool (n,): this rank's samples. Every rank gets the answer. Pairs are counted
    in whole numbers, so the answer does not depend on how samples are spread. Each rank holds its own scores
    twice and the positives of all ranks once. Raises ValueError, on every rank, for a score that is not a number
    or if one of the two classes is missing.
    """
    negatives = scores[~labels]
    negatives.sort()
    counts = torch.tensor(
        [labels.sum(), negatives.size, np.isnan(scores).sum()], dtype=torch.int64, device=parallel.device
    )
    positive, negative, unordered = (int(count) for count in parallel.sum(counts))
    if unordered:
        raise ValueError(f"{unordered} scores are NaN; the training has diverged.")
    if not positive or not negative:
        raise ValueError(
            f"the evaluation set has {positive} positive and {negative} negative samples; both are needed."
        )
    parts = parallel.gather_objects(scores[labels])
    positives = parallel.from_rank_zero(None if parts is None else np.sort(np.concatenate(parts)))
    assert positives is not None
    twice = 0  # lower negatives count two, equal ones one
    for start in range(0, positives.size, CHUNK):
        chunk = positives[start : start + CHUNK]
        for side in ("left", "right"):
            twice += int(np.searchsorted(negatives, chunk, side=side).sum())
    total = parallel.sum(torch.tensor([twice], dtype=torch.int64, device=parallel.device))
    return int(total) / (2 * positive * negative)
