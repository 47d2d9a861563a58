"""Detections from network outputs, for evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.ops import batched_nms

from train_bench.references.parts.box_quality import Detections
from train_bench.references.retinanet.anchors import decode

MIN_SCORE, MAX_IOU, CANDIDATES, KEPT = 0.05, 0.5, 1000, 300


def detect(codes: Tensor, logits: Tensor, levels: Sequence[Tensor], side: int) -> Detections:
    """The detections of one image of `side` pixels.

    codes (anchors, 4), logits (anchors, classes), levels: the anchors of each. Of every level the 1000 best scores
    above 0.05, of whatever class, go through greedy suppression at IoU 0.5 per class; the 300 best are kept.
    """
    counts = [len(level) for level in levels]
    corners, values, names = [], [], []
    for places, scores, prior in zip(codes.split(counts), logits.split(counts), levels, strict=True):
        every = scores.float().sigmoid().flatten()
        candidates = torch.nonzero(every > MIN_SCORE).squeeze(1)
        best, order = every[candidates].topk(min(CANDIDATES, len(candidates)))
        anchor = candidates[order] // scores.shape[1]
        corners.append(decode(places.float()[anchor], prior[anchor]).clamp(0, side))
        values.append(best)
        names.append(candidates[order] % scores.shape[1] + 1)
    boxes, value, label = (torch.cat(parts) for parts in (corners, values, names))
    kept = batched_nms(boxes, value, label, MAX_IOU)[:KEPT]
    return boxes[kept] / side, value[kept], label[kept]
