"""Segmentation quality: sliding-window inference and DICE."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from train_bench.references.unet3d.loss import SMOOTHING

RELATIVE_DEVIATION = 0.125
"""Standard deviation of the importance map's Gaussian, as a share of the window's side."""


def importance(window: tuple[int, int, int]) -> Tensor:
    """float32 (d, h, w): how much a voxel of a window counts, at most 1.

    The cube root of the product of one Gaussian per axis, w_ijk = (g_i g_j g_k)^(1/3), divided by the
    largest value (reference of the benchmark, sliding window).
    """
    axes = [_gaussian(side) for side in window]
    product = axes[0].view(-1, 1, 1) * axes[1].view(1, -1, 1) * axes[2].view(1, 1, -1)
    weights = product ** (1 / 3)
    return (weights / weights.max()).float()


def _gaussian(side: int) -> Tensor:
    place = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    return torch.exp(-0.5 * (place / (RELATIVE_DEVIATION * side)) ** 2)


def without_remainder(volume: Tensor, strides: tuple[int, int, int]) -> Tensor:
    """(..., d, h, w) with the remainder r of each axis by its stride cut away where r is less than half a
    stride, floor(r / 2) of it at the start."""
    for axis, stride in zip((-3, -2, -1), strides, strict=True):
        remainder = volume.shape[axis] % stride
        if remainder < stride / 2 and volume.shape[axis] > stride:
            volume = volume.narrow(axis, remainder // 2, volume.shape[axis] - remainder)
    return volume


def as_shape(sides: list[int]) -> tuple[int, int, int]:
    """The three sides of a window."""
    depth, height, width = sides
    return depth, height, width


def strides_of(window: tuple[int, int, int], overlap: float) -> tuple[int, int, int]:
    """Voxels from one window to the next."""
    return as_shape([max(1, int(side * (1 - overlap))) for side in window])


def sliding_window(
    infer: Callable[[Tensor], Tensor],
    image: Tensor,
    weights: Tensor,
    *,
    strides: tuple[int, int, int],
    padding: float,
    windows: int,
) -> Tensor:
    """float32 (classes, d, h, w) logits of a volume (1, d, h, w), the weighted mean over all windows.

    The volume is padded with `padding` to a whole number of strides and at least one window, floor(half)
    before. `infer` maps (n, 1, *window) to (n, classes, *window), n at most `windows`; `weights` is the
    importance of a window's voxels.
    """
    window = as_shape(list(weights.shape))
    before, padded = _padded(image, window, strides, padding)
    total: Tensor | None = None
    seen = torch.zeros(padded.shape[1:], device=image.device)
    places = itertools.product(
        *(range(0, padded.shape[axis + 1] - window[axis] + 1, strides[axis]) for axis in range(3))
    )
    for group in _batched(places, windows):
        cuts = [
            (slice(None), *(slice(first, first + side) for first, side in zip(place, window, strict=True)))
            for place in group
        ]
        logits = infer(torch.stack([padded[cut] for cut in cuts])).float() * weights
        if total is None:
            total = logits.new_zeros((logits.shape[1], *padded.shape[1:]))
        for cut, part in zip(cuts, logits, strict=True):
            total[cut] += part
            seen[cut[1:]] += weights
    assert total is not None, "a padded volume has at least one window"
    total /= seen
    for axis, first in enumerate(before, start=1):
        total = total.narrow(axis, first, image.shape[axis])
    return total


def _padded(
    image: Tensor, window: tuple[int, ...], strides: tuple[int, int, int], value: float
) -> tuple[list[int], Tensor]:
    """Padding before each axis in voxels, and the padded volume."""
    before: list[int] = []
    pads: list[int] = []
    for axis, side, stride in zip((1, 2, 3), window, strides, strict=True):
        size = image.shape[axis]
        missing = max(side, size + -size % stride) - size
        before.append(missing // 2)
        pads = [missing // 2, missing - missing // 2, *pads]
    return before, functional.pad(image, pads, value=value)


def _batched(places: Iterator[tuple[int, ...]], count: int) -> Iterator[list[tuple[int, ...]]]:
    while group := list(itertools.islice(places, count)):
        yield group


def dice_per_class(predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """float64 (classes - 1,): (2 |P and T| + s) / (|P| + |T| + s) of each class but the background, s = 1e-6,
    so that a class that is rightly nowhere has 1. Both arguments are integer, of one shape."""
    scores = []
    for number in range(1, classes):
        mine, truth = predicted == number, labels == number
        common, total = (mine & truth).sum().double(), (mine.sum() + truth.sum()).double()
        scores.append((2.0 * common + SMOOTHING) / (total + SMOOTHING))
    return torch.stack(scores)
