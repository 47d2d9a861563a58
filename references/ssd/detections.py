"""Detections from network outputs, for evaluation."""

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.ops import nms

from train_bench.references.parts.box_quality import Detections
from train_bench.references.ssd.priors import decode

MIN_SCORE, MAX_IOU, CANDIDATES, KEPT = 0.05, 0.5, 200, 200


def detect(offsets: Tensor, logits: Tensor, prior: Tensor) -> Detections:
    """The detections of one image.

    offsets (4, priors), logits (K + 1, priors). Per class the 200 best scores above 0.05 go through greedy
    suppression at IoU 0.5; the 200 best of all classes are kept, best first.
    """
    boxes = decode(offsets.float().T, prior)
    scores = logits.float().softmax(dim=0)
    of_labels = []
    for label in range(1, len(scores)):
        candidates = torch.nonzero(scores[label] > MIN_SCORE).squeeze(1)
        best = scores[label][candidates].argsort(descending=True, stable=True)[:CANDIDATES]
        candidates = candidates[best]
        kept = candidates[nms(boxes[candidates], scores[label][candidates], MAX_IOU)]
        of_labels.append((boxes[kept], scores[label][kept], torch.full_like(kept, label)))
    corners, values, classes = (torch.cat(parts) for parts in zip(*of_labels, strict=True))
    order = values.argsort(descending=True, stable=True)[:KEPT]
    return corners[order], values[order], classes[order]
