"""The random crop of training (Liu et al. 2016, section 2.2), in the reading of the benchmark's reference."""

from __future__ import annotations

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
    are kept, at least one, and clipped to the crop. When all fail, an option is drawn again.
    """
    while True:
        option = OPTIONS[int(rng.integers(len(OPTIONS)))]
        if option == WHOLE:
            return (0.0, 0.0, 1.0, 1.0), np.arange(len(boxes)), boxes.copy()
        for _ in range(max_samples):
            width, height = rng.uniform(0.3, 1.0, 2)
            if not 0.5 <= width / height <= 2.0:
                continue
            left, top = rng.uniform(0.0, 1.0 - width), rng.uniform(0.0, 1.0 - height)
            crop = (float(left), float(top), float(left + width), float(top + height))
            if option != ANY and (overlap(boxes, crop) <= float(option)).any():
                continue
            centre = (boxes[:, :2] + boxes[:, 2:]) / 2
            kept = np.flatnonzero(((centre > crop[:2]) & (centre < crop[2:])).all(axis=1))
            if len(kept):
                corner, size = np.array(crop[:2] * 2), np.array([width, height, width, height])
                return crop, kept, ((boxes[kept] - corner) / size).clip(0.0, 1.0)


def overlap(boxes: np.ndarray, crop: Crop) -> np.ndarray:
    """IoU of each of `boxes` (n, 4) with `crop`."""
    low, high = np.maximum(boxes[:, :2], crop[:2]), np.minimum(boxes[:, 2:], crop[2:])
    shared = (high - low).clip(min=0.0).prod(axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return shared / (areas + (crop[2] - crop[0]) * (crop[3] - crop[1]) - shared)
