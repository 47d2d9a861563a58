"""Prior ("default") boxes, their encoding and decoding.

Liu et al., "SSD: Single Shot MultiBox Detector" (2016), sections 2.2 and 3.1. Boxes are shares of the image.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import box_convert

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


def match(boxes: Tensor, labels: Tensor, counts: Sequence[int], prior: Tensor) -> tuple[Tensor, Tensor]:
    """Give every prior box of every image an object: (images, priors, 4) offsets and int64 (images, priors) classes,
    0 where none.

    `boxes` (rows, 4: corners) and `labels` (rows,) are those of all images, `counts` of each, at least one. Each box
    claims the prior box of highest IoU, the later of two claims wins; any other prior box takes the best object of
    its image, the earlier of two that are equal, if their IoU is above 0.5.
    """
    overlap = _iou(boxes.numpy(), box_convert(prior, "cxcywh", "xyxy").numpy())
    rows, first = np.arange(len(boxes)), np.cumsum([0, *counts[:-1]])
    image = np.repeat(np.arange(len(counts)), counts)
    best = np.maximum.reduceat(overlap, first)
    best_row = np.minimum.reduceat(np.where(overlap == best[image], rows[:, None], len(rows)), first)
    claimed = overlap.argmax(axis=1)
    best[image, claimed], best_row[image, claimed] = 2.0, rows
    taken = torch.from_numpy(best_row)
    classes = torch.where(torch.from_numpy(best > POSITIVE_IOU), labels[taken], 0)
    return _offsets(box_convert(boxes, "xyxy", "cxcywh")[taken], prior), classes


def _iou(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """float32 (n, m) of (n, 4) and (m, 4) corners: torchvision's `box_iou` bit by bit, which starts more operations."""
    left, top, right, bottom = boxes.T[:, :, None]
    other_left, other_top, other_right, other_bottom = others.T
    width = np.maximum(np.minimum(right, other_right) - np.maximum(left, other_left), 0)
    height = np.maximum(np.minimum(bottom, other_bottom) - np.maximum(top, other_top), 0)
    shared = width * height
    area, other_area = (
        (right - left) * (bottom - top),
        (other_right - other_left) * (other_bottom - other_top),
    )
    return np.asarray(shared / (area + other_area - shared))


def _offsets(wanted: Tensor, prior: Tensor) -> Tensor:
    """Centre x, y, width, height (..., 4) as offsets (..., 4) from `prior`, scaled by 0.1 (centre) and 0.2 (size)."""
    centre = (wanted[..., :2] - prior[..., :2]) / prior[..., 2:] / CENTRE_SCALE
    return torch.cat([centre, (wanted[..., 2:] / prior[..., 2:]).log() / SIZE_SCALE], dim=-1)


def decode(offsets: Tensor, prior: Tensor) -> Tensor:
    """Back again: offsets (..., 4) as corners (..., 4)."""
    centre = prior[..., :2] + CENTRE_SCALE * offsets[..., :2] * prior[..., 2:]
    size = prior[..., 2:] * (SIZE_SCALE * offsets[..., 2:]).exp()
    return box_convert(torch.cat([centre, size], dim=-1), "cxcywh", "xyxy")
