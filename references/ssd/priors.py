"""Prior ("default") boxes, what the network has to say about them, and back again.

Liu et al., "SSD: Single Shot MultiBox Detector" (2016), sections 2.2 and 3.1. Boxes are shares of the image.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torchvision.ops import box_convert, box_iou

from train_bench.references.ssd.config import Model

POSITIVE_IOU = 0.5
CENTRE_SCALE, SIZE_SCALE = 0.1, 0.2


def priors(shape: Model) -> Tensor:
    """float32 (priors, 4): centre x, y, width, height, clamped to [0, 1]. Map after map; per map the kinds
    of box, and per kind the places row by row, which is the order of the channels of a head."""
    boxes = []
    for number, places in enumerate(shape.feature_sizes):
        small, large = (scale / shape.image_size for scale in shape.scales[number : number + 2])
        between = math.sqrt(small * large)
        sizes = [(small, small), (between, between)]
        for ratio in shape.aspect_ratios[number]:
            width, height = small * math.sqrt(ratio), small / math.sqrt(ratio)
            sizes += [(width, height), (height, width)]
        per_side = shape.image_size / shape.feature_steps[number]
        for width, height in sizes:
            for row, column in itertools.product(range(places), repeat=2):
                boxes.append(((column + 0.5) / per_side, (row + 0.5) / per_side, width, height))
    return torch.tensor(boxes, dtype=torch.float32).clamp_(0.0, 1.0)


def match(boxes: Tensor, labels: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Give every prior box an object: (priors, 4) offsets and int64 (priors,) classes, 0 where none.

    Each of `boxes` (n, 4: corners) claims the prior box of highest IoU, the later of two claims wins; any
    other prior box takes its own best object if their IoU is above 0.5.
    """
    overlap = box_iou(boxes, box_convert(prior, "cxcywh", "xyxy"))
    best_overlap, best_object = overlap.max(dim=0)
    for number, claimed in enumerate(overlap.argmax(dim=1).tolist()):
        best_overlap[claimed], best_object[claimed] = 2.0, number
    classes = torch.where(best_overlap > POSITIVE_IOU, labels[best_object], 0)
    return encode(boxes[best_object], prior), classes


def encode(boxes: Tensor, prior: Tensor) -> Tensor:
    """Corners (..., 4) as offsets (..., 4) from `prior`, scaled by 0.1 (centre) and 0.2 (size)."""
    wanted = box_convert(boxes, "xyxy", "cxcywh")
    centre = (wanted[..., :2] - prior[..., :2]) / prior[..., 2:] / CENTRE_SCALE
    return torch.cat([centre, (wanted[..., 2:] / prior[..., 2:]).log() / SIZE_SCALE], dim=-1)


def decode(offsets: Tensor, prior: Tensor) -> Tensor:
    """The inverse of `encode`: offsets (..., 4) as corners (..., 4)."""
    centre = prior[..., :2] + CENTRE_SCALE * offsets[..., :2] * prior[..., 2:]
    size = prior[..., 2:] * (SIZE_SCALE * offsets[..., 2:]).exp()
    return box_convert(torch.cat([centre, size], dim=-1), "cxcywh", "xyxy")
