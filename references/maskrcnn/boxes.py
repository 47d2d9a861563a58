"""Boxes in the reference's "+1 convention" and their anchors: x1, y1, x2, y2 are the first and the last pixel, so a
width is x2 - x1 + 1.

Anchors: Ren et al., "Faster R-CNN" (2015), in the construction of its published Python code.
Codes: the same paper, eq. 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision import ops

RATIOS = (0.5, 1.0, 2.0)
"""Height over width of the anchors of one position."""

LARGEST_LOG = math.log(1000.0 / 16)
"""No box grows by more than this logarithm of its size in one decoding."""

RPN_WEIGHTS = (1.0, 1.0, 1.0, 1.0)
BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)


def as_edges(boxes: Tensor) -> Tensor:
    """First and last pixels -> edges: 1 added to x2 and y2. Operators without the +1 convention give
    exactly its widths, areas and IoUs on the result."""
    first, last = boxes.split(2, dim=-1)
    return torch.cat([first, last + 1.0], dim=-1)


def iou(one: Tensor, other: Tensor) -> Tensor:
    """(n, 4) and (m, 4) -> (n, m)."""
    return ops.box_iou(as_edges(one), as_edges(other))


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Indices of the boxes that no better box overlaps by more than `threshold`, best first."""
    return ops.nms(as_edges(boxes), scores, threshold)


def clip(boxes: Tensor, heights: Tensor, widths: Tensor) -> Tensor:
    """(..., 4) boxes moved into images; `heights` and `widths` broadcast against (...)."""
    x1, y1, x2, y2 = boxes.unbind(-1)
    zero = torch.zeros((), device=boxes.device)
    right, bottom = widths - 1, heights - 1
    clipped = (x1.clamp(zero, right), y1.clamp(zero, bottom), x2.clamp(zero, right), y2.clamp(zero, bottom))
    return torch.stack(clipped, dim=-1)


def encode(targets: Tensor, boxes: Tensor, weights: Sequence[float]) -> Tensor:
    """(n, 4) codes that move `boxes` to `targets`."""
    size, centre = _size_and_centre(boxes)
    wanted_size, wanted_centre = _size_and_centre(targets)
    codes = ((wanted_centre - centre) / size, torch.log(wanted_size / size))
    return torch.cat([part * weight for part, weight in zip(codes, _pairs(weights), strict=True)], dim=-1)


def decode(codes: Tensor, boxes: Tensor, weights: Sequence[float]) -> Tensor:
    """(..., 4) codes applied to (..., 4) boxes."""
    size, centre = _size_and_centre(boxes)
    shift, growth = (
        part / weight for part, weight in zip(codes.split(2, dim=-1), _pairs(weights), strict=True)
    )
    centre = centre + shift * size
    half = 0.5 * size * growth.clamp(max=LARGEST_LOG).exp()
    return torch.cat([centre - half, centre + half - 1], dim=-1)


def _pairs(weights: Sequence[float]) -> tuple[float, float]:
    """Weight of both centres and of both sizes: numbers, because a tensor of them would be waited for on a GPU."""
    across, down, wide, high = weights
    assert (across, wide) == (down, high)
    return across, wide


def _size_and_centre(boxes: Tensor) -> tuple[Tensor, Tensor]:
    first, last = boxes.split(2, dim=-1)
    size = last - first + 1
    return size, first + 0.5 * size


def base_anchors(size: int, stride: int) -> Tensor:
    """(3, 4) anchors of the position at the origin: a square of `stride` pixels in each aspect ratio, sides rounded to
    pixels, then scaled to `size`."""
    centre = (stride - 1) / 2
    anchors = []
    for ratio in RATIOS:
        width = round(math.sqrt(stride * stride / ratio))
        height = round(width * ratio)
        across, down = (width * size / stride - 1) / 2, (height * size / stride - 1) / 2
        anchors.append([centre - across, centre - down, centre + across, centre + down])
    return torch.tensor(anchors)


def grid_anchors(size: int, stride: int, rows: int, columns: int) -> Tensor:
    """(rows * columns * 3, 4): row by row, the ratios of a position next to each other."""
    y, x = torch.meshgrid(torch.arange(rows) * stride, torch.arange(columns) * stride, indexing="ij")
    shifts = torch.stack([x, y, x, y], dim=-1).reshape(-1, 1, 4)
    return (shifts + base_anchors(size, stride)).reshape(-1, 4)
