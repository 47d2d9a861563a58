"""Random crop of training (Liu et al. 2016, section 2.2), as implemented by the benchmark's reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WHOLE, ANY = "whole", "any"
OPTIONS: tuple[str | float, ...] = (WHOLE, 0.1, 0.3, 0.5, 0.7, 0.9, ANY)
"""No crop; a crop whose IoU with every box is above the number; a crop whatever its IoU."""

Crop = tuple[float, float, float, float]
"""x_min, y_min, x_max, y_max as shares of the image."""


def draw_crop(
    boxes: np.ndarray, max_samples: int, rng: np.random.Generator
) -> tuple[Crop, np.ndarray, np.ndarray]:
    """A crop, the numbers of the boxes that it keeps, and these boxes (n, 4) as shares of the crop.

    `boxes` (n > 0, 4) are corners as shares of the image. An option is drawn, then up to `max_samples`
    crops with sides uniform in 0.3 to 1 and an aspect ratio within 1/2 to 2; boxes whose centre is inside
    are kept, at least one, and clipped to the crop. When all fail, an option is drawn again. Images have few boxes:
    arrays of them would cost more than they save.
    """
    while True:
        option = OPTIONS[int(rng.integers(len(OPTIONS)))]
        if option == WHOLE:
            return (0.0, 0.0, 1.0, 1.0), np.arange(len(boxes)), boxes.copy()
        for _ in range(max_samples):
            width, height = rng.uniform(0.3, 1.0), rng.uniform(0.3, 1.0)
            if not 0.5 <= width / height <= 2.0:
                continue
            left, top = rng.uniform(0.0, 1.0 - width), rng.uniform(0.0, 1.0 - height)
            crop = (left, top, left + width, top + height)
            corners = boxes.tolist()
            if option != ANY and any(overlap(box, crop) <= float(option) for box in corners):
                continue
            kept = [number for number, box in enumerate(corners) if _has_centre(crop, box)]
            if kept:
                inside = [_shares(corners[number], left, top, width, height) for number in kept]
                return crop, np.array(kept), np.array(inside).clip(0.0, 1.0)


def overlap(box: Sequence[float], crop: Crop) -> float:
    """IoU of a box and a crop."""
    width = max(0.0, min(box[2], crop[2]) - max(box[0], crop[0]))
    height = max(0.0, min(box[3], crop[3]) - max(box[1], crop[1]))
    shared, area = width * height, (box[2] - box[0]) * (box[3] - box[1])
    return shared / (area + (crop[2] - crop[0]) * (crop[3] - crop[1]) - shared)


def _shares(box: Sequence[float], left: float, top: float, width: float, height: float) -> list[float]:
    return [
        (box[0] - left) / width,
        (box[1] - top) / height,
        (box[2] - left) / width,
        (box[3] - top) / height,
    ]


def _has_centre(crop: Crop, box: Sequence[float]) -> bool:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return crop[0] < x < crop[2] and crop[1] < y < crop[3]
