"""Matching of boxes to objects by IoU, as in anchor-based detectors."""

from __future__ import annotations

import torch
from torch import Tensor

BACKGROUND, BETWEEN = -1, -2
"""Matches that are no object: background, and what is neither and makes no loss."""


def match(overlap: Tensor, *, above: float, below: float, claim: bool) -> Tensor:
    """int64 (boxes,): the object that each box overlaps most if `overlap`, the IoU (objects, boxes), is at least
    `above`, `BACKGROUND` if it is less than `below`, else `BETWEEN`.

    With `claim`, the boxes with the highest IoU that an object has with any, ties included, are matched to the object
    that they overlap most, however little that is ("low-quality matches").
    """
    if not len(overlap):
        return torch.full((overlap.shape[1],), BACKGROUND, device=overlap.device)
    best, best_of = overlap.max(dim=0)
    matches = torch.where(best >= above, best_of, BETWEEN)
    matches = torch.where(best < below, BACKGROUND, matches)
    if claim:
        claimed = (overlap == overlap.amax(dim=1, keepdim=True)).any(dim=0)
        matches = torch.where(claimed, best_of, matches)
    return matches
