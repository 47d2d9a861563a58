"""Image transforms: the random training crop, the centre crop of an evaluation.

Both transforms give float32 pixels from 0 to 255; the means are subtracted on the device, once per
batch. Resizing is bilinear without antialiasing; `half_pixel_centers` says where pixels lie.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from train_bench.references.resnet.config import Data

Box = tuple[int, int, int, int]
"""Top, left, height, width, in pixels."""


def draw_crop(height: int, width: int, boxes: np.ndarray, data: Data, rng: np.random.Generator) -> Box:
    """The "distorted bounding box" crop of the reference: an aspect ratio uniform in `crop_aspect`, a
    height uniform among those whose area is within `crop_area` of the image, a uniform position; kept
    if it covers at least `crop_covers` of one object box. After `crop_attempts` failures, or if
    nothing is random about it, the whole image.

    `boxes` is (n, 4) with x_min, y_min, x_max, y_max as shares of the image.
    """
    low, high = (share * height * width for share in data.crop_area)
    for _ in range(data.crop_attempts):
        aspect = rng.uniform(data.crop_aspect[0], data.crop_aspect[1])
        tallest = min(int(math.sqrt(high / aspect)), height, int(width / aspect))
        shortest = min(math.ceil(math.sqrt(low / aspect)), tallest)
        rows = int(rng.integers(shortest, tallest + 1))
        columns = min(round(rows * aspect), width)
        if rows < 1 or columns < 1 or not low <= rows * columns <= high:
            continue
        top = int(rng.integers(0, height - rows + 1))
        left = int(rng.integers(0, width - columns + 1))
        crop = (top, left, rows, columns)
        if covered_share(crop, height, width, boxes) >= data.crop_covers:
            return crop
    return 0, 0, height, width


def covered_share(crop: Box, height: int, width: int, boxes: np.ndarray) -> float:
    """The largest share of any of `boxes` that lies inside `crop`; of the whole image if there are none."""
    top, left, rows, columns = crop
    if not len(boxes):
        return rows * columns / (height * width)
    x_min, y_min, x_max, y_max = (boxes * np.array([width, height, width, height])).T
    across = np.minimum(x_max, left + columns) - np.maximum(x_min, left)
    down = np.minimum(y_max, top + rows) - np.maximum(y_min, top)
    area = np.maximum((x_max - x_min) * (y_max - y_min), 1e-9)
    return float((np.maximum(across, 0) * np.maximum(down, 0) / area).max())


def for_training(pixels: np.ndarray, boxes: np.ndarray, data: Data, rng: np.random.Generator) -> Tensor:
    """uint8 (height, width, 3) -> float32 (3, image_size, image_size): crop, flip, resize."""
    top, left, rows, columns = draw_crop(pixels.shape[0], pixels.shape[1], boxes, data, rng)
    crop = pixels[top : top + rows, left : left + columns]
    flip = bool(rng.random() < data.flip)
    side = data.image_size
    return resize(crop, side, side, half_pixel_centers=data.half_pixel_centers, flip=flip)


def for_evaluation(pixels: np.ndarray, data: Data) -> Tensor:
    """uint8 (height, width, 3) -> float32 (3, image_size, image_size): the shorter side to
    `eval_resize` (the longer one truncated to an integer), then the central square."""
    height, width = pixels.shape[:2]
    scale = data.eval_resize / min(height, width)
    rows = data.eval_resize if height <= width else int(height * scale)
    columns = data.eval_resize if width <= height else int(width * scale)
    top, left = (rows - data.image_size) // 2, (columns - data.image_size) // 2
    square = slice(top, top + data.image_size), slice(left, left + data.image_size)
    return resize(pixels, rows, columns, half_pixel_centers=data.half_pixel_centers, part=square)


def resize(
    pixels: np.ndarray,
    rows: int,
    columns: int,
    *,
    half_pixel_centers: bool = True,
    flip: bool = False,
    part: tuple[slice, slice] = (slice(None), slice(None)),
) -> Tensor:
    """uint8 (height, width, 3), flipped if so asked -> float32 (3, rows, columns) by bilinear interpolation, and of it
    the `part` in given rows and columns."""
    if not half_pixel_centers:
        down = _taps(pixels.shape[0], rows, part[0])
        return _from_corners(pixels, down, _taps(pixels.shape[1], columns, part[1], flip=flip))
    flipped = pixels[:, ::-1] if flip else pixels
    image = torch.from_numpy(flipped.astype(np.float32)[None]).permute(0, 3, 1, 2)
    if image.shape[2:] != (rows, columns):
        image = functional.interpolate(
            image, size=(rows, columns), mode="bilinear", align_corners=False, antialias=False
        )
    return image[0, :, part[0], part[1]]


Taps = tuple[np.ndarray, np.ndarray, np.ndarray]
"""For each of some places along a side the pixels before and after it, and the share of the latter in float32."""


def _taps(size: int, count: int, part: slice, *, flip: bool = False) -> Taps:
    """Of those of `count` places that are in `part`; place y is at y size / count. `flip`: pixels from the end."""
    places = np.arange(count, dtype=np.float32)[part] * np.float32(size / count)
    before = np.floor(places).astype(np.int64)
    after, share = np.minimum(before + 1, size - 1), places - before.astype(np.float32)
    return (size - 1 - before, size - 1 - after, share) if flip else (before, after, share)


def _from_corners(pixels: np.ndarray, down: Taps, across: Taps) -> Tensor:
    """uint8 (height, width, 3) -> float32 (3, rows, columns): along each needed row once, its three colours one after
    the other so that the innermost loops are long, then between rows."""
    left, right, share = across
    used, numbers = np.unique(np.concatenate(down[:2]), return_inverse=True)
    lines = pixels[used].reshape(len(used), -1)
    first, second = (lines.take((3 * taps + _COLOURS).ravel(), axis=1) for taps in (left, right))
    mixed = _between(first, second, np.tile(share, 3))
    above, below = (mixed.take(each, axis=0) for each in np.split(numbers, 2))
    found = _between(above, below, down[2][:, None]).reshape(len(above), 3, len(left))
    return torch.from_numpy(found).permute(1, 0, 2)


_COLOURS = np.arange(3)[:, None]


def _between(first: np.ndarray, second: np.ndarray, share: np.ndarray) -> np.ndarray:
    """float32: first + (second - first) share, rounded after each operation, as the reference has it."""
    found: np.ndarray = np.subtract(second, first, dtype=np.float32)
    found *= share
    found += first
    return found
