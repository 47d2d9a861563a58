"""Anchors, box codes, and matching of anchors to objects.

Lin et al., "Focal Loss for Dense Object Detection" (2017), section 4; Ren et al., "Faster R-CNN" (2015), eq. 2. Boxes
are corners in pixels of the image as the network sees it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torchvision.ops import box_convert, box_iou

from train_bench.references.parts import matching
from train_bench.references.retinanet.config import Model

RATIOS = (0.5, 1.0, 2.0)
"""Height over width."""

OCTAVE = (0.0, 1 / 3, 2 / 3)
"""Sizes of a level, as powers of two of its smallest one."""

KINDS = len(RATIOS) * len(OCTAVE)
"""Anchors of one place."""

OBJECT, BACKGROUND = 0.5, 0.4
"""IoU from which on an anchor is an object, and below which it is background."""

LARGEST_LOG = math.log(1000.0 / 16)
"""No box grows by more than this logarithm of its size in decoding."""


def level_sizes(shape: Model) -> list[int]:
    """Places per side of the levels P3 to P7. Every layer with stride 2 rounds up."""
    side = shape.image_size
    sizes = []
    halvings = 1 + shape.stem_pool + len(shape.widths) - 1 + 2
    for _ in range(halvings):
        side = math.ceil(side / 2)
        sizes.append(side)
    return sizes[-5:]


def anchors(shape: Model) -> list[Tensor]:
    """Per level (places, 4): row by row; at each place ratio by ratio, each in three sizes. Corners of the one at the
    origin are whole pixels; from place to place it is the whole part of the image over the places."""
    found = []
    for level, places in enumerate(level_sizes(shape)):
        smallest = shape.anchor_size * 2**level
        sizes = torch.tensor([float(int(smallest * 2**power)) for power in OCTAVE])
        stretch = torch.tensor(RATIOS).sqrt()
        height, width = (stretch[:, None] * sizes).flatten(), ((1 / stretch)[:, None] * sizes).flatten()
        base = (torch.stack([-width, -height, width, height], dim=1) / 2).round()
        steps = torch.arange(places, dtype=torch.float32) * (shape.image_size // places)
        y, x = torch.meshgrid(steps, steps, indexing="ij")
        shifts = torch.stack([x, y, x, y], dim=-1).reshape(-1, 1, 4)
        found.append((shifts + base).reshape(-1, 4))
    return found


def match(boxes: Tensor, prior: Tensor) -> Tensor:
    """int64 (anchors,): the box (n, 4) matched to each anchor, or `matching.BACKGROUND`, or `matching.BETWEEN`, which
    has no loss. The anchors that overlap a box most are its own, however little that is."""
    return matching.match(box_iou(boxes, prior), above=OBJECT, below=BACKGROUND, claim=True)


def encode(boxes: Tensor, prior: Tensor) -> Tensor:
    """(n, 4) codes that move `prior` to `boxes`."""
    wanted, given = (box_convert(each, "xyxy", "cxcywh") for each in (boxes, prior))
    centre = (wanted[:, :2] - given[:, :2]) / given[:, 2:]
    return torch.cat([centre, (wanted[:, 2:] / given[:, 2:]).log()], dim=1)


def decode(codes: Tensor, prior: Tensor) -> Tensor:
    """(n, 4) codes applied to `prior`."""
    given = box_convert(prior, "xyxy", "cxcywh")
    centre = given[:, :2] + codes[:, :2] * given[:, 2:]
    size = given[:, 2:] * codes[:, 2:].clamp(max=LARGEST_LOG).exp()
    return box_convert(torch.cat([centre, size], dim=1), "cxcywh", "xyxy")
