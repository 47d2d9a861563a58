"""The focal loss of classes and the L1 loss of boxes (Lin et al. 2017, sections 3 and 4.1)."""

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
    kinds = torch.arange(1, logits.shape[2] + 1, device=logits.device)
    losses = []
    for places, scores, truth, names in zip(codes, logits, boxes, labels, strict=True):
        matches = match(truth, prior)
        found, counted = matches >= 0, matches != matching.BETWEEN
        count = found.sum().clamp(min=1)
        wanted = torch.zeros_like(scores)
        distance = scores.new_zeros(())
        if len(truth):
            taken = matches.clamp(min=0)
            wanted = ((names[taken][:, None] == kinds) & found[:, None]).to(scores.dtype)
            apart = functional.l1_loss(places, encode(truth[taken], prior), reduction="none")
            distance = (apart * found[:, None]).sum()
        focal = sigmoid_focal_loss(scores, wanted, alpha=ALPHA, gamma=GAMMA)
        losses.append(((focal * counted[:, None]).sum() + distance) / count)
    return torch.stack(losses).mean()
