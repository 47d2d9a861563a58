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
    if rng.random() < data.flip:
        crop = crop[:, ::-1]
    return resize(crop, data.image_size, data.image_size, half_pixel_centers=data.half_pixel_centers)


def for_evaluation(pixels: np.ndarray, data: Data) -> Tensor:
    """uint8 (height, width, 3) -> float32 (3, image_size, image_size): the shorter side to
    `eval_resize` (the longer one truncated to an integer), then the central square."""
    height, width = pixels.shape[:2]
    scale = data.eval_resize / min(height, width)
    rows = data.eval_resize if height <= width else int(height * scale)
    columns = data.eval_resize if width <= height else int(width * scale)
    resized = resize(pixels, rows, columns, half_pixel_centers=data.half_pixel_centers)
    top, left = (rows - data.image_size) // 2, (columns - data.image_size) // 2
    return resized[:, top : top + data.image_size, left : left + data.image_size]


def resize(pixels: np.ndarray, rows: int, columns: int, *, half_pixel_centers: bool = True) -> Tensor:
    """uint8 (height, width, 3) -> float32 (3, rows, columns) by bilinear interpolation."""
    if not half_pixel_centers and pixels.shape[:2] != (rows, columns):
        return torch.from_numpy(_resize_from_corners(pixels, rows, columns)).permute(2, 0, 1)
    image = torch.from_numpy(pixels.astype(np.float32)[None]).permute(0, 3, 1, 2)
    if image.shape[2:] == (rows, columns):
        return image[0]
    return functional.interpolate(
        image, size=(rows, columns), mode="bilinear", align_corners=False, antialias=False
    )[0]


def _resize_from_corners(pixels: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """uint8 (height, width, 3) -> float32 (rows, columns, 3): row y is between those at floor(y height / rows)."""
    above, below, down = _neighbours(pixels.shape[0], rows)
    left, right, across = _neighbours(pixels.shape[1], columns)

    def along(lines: np.ndarray) -> np.ndarray:
        first, second = lines[:, left].astype(np.float32), lines[:, right].astype(np.float32)
        mixed: np.ndarray = first + (second - first) * across[:, None]
        return mixed

    top, bottom = along(pixels[above]), along(pixels[below])
    found: np.ndarray = top + (bottom - top) * down[:, None, None]
    return found


def _neighbours(size: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each of `count` places along `size` pixels the pixels before and after it, and the share of the latter."""
    places = np.arange(count, dtype=np.float32) * np.float32(size / count)
    before = np.floor(places).astype(np.int64)
    return before, np.minimum(before + 1, size - 1), places - before.astype(np.float32)
