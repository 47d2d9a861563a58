"""Focal loss of classes and L1 loss of boxes (Lin et al. 2017, sections 3 and 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from train_bench.references.parts import matching
from train_bench.references.retinanet.anchors import encode, match

ALPHA = 0.25
"""Weight of the classes that are there; the others' is the rest. The exponent gamma is 2."""


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
    own = logits.gather(2, (wanted - 1).clamp(min=0).unsqueeze(2))
    present = ALPHA * (-own).sigmoid().square() * _softplus(-own)
    there = (present.squeeze(2) - _Absent.apply(own)) * found
    distance = functional.l1_loss(codes, targets, reduction="none")
    sums = (_Absent.apply(logits) * counted + there + distance.sum(dim=2) * found).sum(dim=1)
    return (sums / found.sum(dim=1).clamp(min=1)).mean()


class _Absent(torch.autograd.Function):
    """(samples, anchors, classes) logits -> (samples, anchors): the sum over classes of the loss of one that is absent.
    Keeps nothing but the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        return _softplus(logits).mul_(logits.sigmoid().square_()).sum(dim=2).mul_(1 - ALPHA)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (logits,) = ctx.saved_tensors
        sigmoid = logits.sigmoid()
        slope = (1 - sigmoid).mul_(_softplus(logits)).mul_(2).add_(sigmoid).mul_(sigmoid.square_())
        return slope.mul_(gradients[0].mul(1 - ALPHA).unsqueeze(2))


def _softplus(values: Tensor) -> Tensor:
    """log(1 + exp(x)), exact to where it is x in float64."""
    return functional.softplus(values, threshold=40.0)


def _asked(boxes: Tensor, labels: Tensor, prior: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Targets of an image's anchors: class, 0 for none, and codes; masks of the objects and of the anchors in the class
    loss."""
    matches = match(boxes, prior)
    found = matches >= 0
    if not len(boxes):
        return torch.zeros_like(matches), torch.zeros_like(prior), found, ~found
    taken = matches.clamp(min=0)
    return labels[taken] * found, encode(boxes[taken], prior), found, matches != matching.BETWEEN
