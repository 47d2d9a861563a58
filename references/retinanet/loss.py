"""Focal loss of classes and L1 loss of boxes (Lin et al. 2017, sections 3 and 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torchvision.ops import sigmoid_focal_loss

from train_bench.references.parts import matching
from train_bench.references.retinanet.anchors import encode, match

ALPHA, GAMMA = 0.25, 2.0


def focal_loss(
    codes: Tensor, logits: Tensor, boxes: Sequence[Tensor], labels: Sequence[Tensor], prior: Tensor
) -> Tensor:
    """Mean over images of both losses, each a sum over anchors divided by the anchors that are objects (at least 1).

    codes (samples, anchors, 4), logits (samples, anchors, classes); per image boxes (n, 4) and labels int64 (n,) from
    1; prior (anchors, 4). Anchors between object and background are in neither sum.
    """
    wanted, targets, found, counted = (
        torch.stack(parts)
        for parts in zip(*(_asked(*truth, prior) for truth in zip(boxes, labels, strict=True)), strict=True)
    )
    kinds = torch.arange(1, logits.shape[2] + 1, device=logits.device)
    focal = sigmoid_focal_loss(
        logits, (wanted[:, :, None] == kinds).to(logits.dtype), alpha=ALPHA, gamma=GAMMA
    )
    distance = functional.l1_loss(codes, targets, reduction="none")
    sums = (focal * counted[:, :, None]).sum(dim=(1, 2)) + (distance * found[:, :, None]).sum(dim=(1, 2))
    return (sums / found.sum(dim=1).clamp(min=1)).mean()


def _asked(boxes: Tensor, labels: Tensor, prior: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Targets of an image's anchors: class, 0 for none, and codes; masks of the objects and of the anchors in the class
    loss."""
    matches = match(boxes, prior)
    found = matches >= 0
    if not len(boxes):
        return torch.zeros_like(matches), torch.zeros_like(prior), found, ~found
    taken = matches.clamp(min=0)
    return labels[taken] * found, encode(boxes[taken], prior), found, matches != matching.BETWEEN
