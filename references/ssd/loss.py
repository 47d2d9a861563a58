"""Multibox loss (Liu et al. 2016, equations 1 to 3) with hard negatives."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

NEGATIVES_PER_POSITIVE = 3


def multibox_loss(offsets: Tensor, logits: Tensor, targets: Tensor, classes: Tensor) -> Tensor:
    """Mean over images of the smooth L1 loss of the positives plus the cross-entropy of the positives and of
    the three times as many negatives of highest cross-entropy, over the number of positives. An image
    without positives adds 0.

    offsets (samples, 4, priors), logits (samples, K + 1, priors), targets (samples, priors, 4),
    classes int64 (samples, priors) with 0 for the background.
    """
    positive = classes > 0
    count = positive.sum(dim=1)
    distance = functional.smooth_l1_loss(offsets, targets.transpose(1, 2), reduction="none").sum(dim=1)
    place = (distance * positive).sum(dim=1)
    entropy = functional.cross_entropy(logits, classes, reduction="none")
    order = entropy.detach().masked_fill(positive, -1.0).argsort(dim=1, descending=True)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    negative = (rank < NEGATIVES_PER_POSITIVE * count[:, None]) & ~positive
    kind = (entropy * (positive | negative)).sum(dim=1)
    return ((place + kind) * (count > 0) / count.clamp(min=1)).mean()
