"""Decoding, crops and resizing against obvious implementations."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from tests.references.configs import resnet
from train_bench.references.resnet.images import (
    covered_share,
    draw_crop,
    for_evaluation,
    for_training,
    resize,
)
from train_bench.references.resnet.pixels import as_rgb, decode

NONE = np.zeros((0, 4), dtype=np.float32)


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def slow_resize(pixels: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Bilinear between the four nearest pixel centres, one output pixel at a time."""
    height, width = pixels.shape[:2]
    out = np.zeros((rows, columns, 3))
    for row in range(rows):
        y = max((row + 0.5) * height / rows - 0.5, 0)
        top, dy = int(y), y - int(y)
        below = min(top + 1, height - 1)
        for column in range(columns):
            x = max((column + 0.5) * width / columns - 0.5, 0)
            left, dx = int(x), x - int(x)
            right = min(left + 1, width - 1)
            upper = pixels[top, left] * (1 - dx) + pixels[top, right] * dx
            lower = pixels[below, left] * (1 - dx) + pixels[below, right] * dx
            out[row, column] = upper * (1 - dy) + lower * dy
    return out


@pytest.mark.parametrize("shape", [(5, 7, 9, 4), (12, 10, 3, 3), (4, 4, 8, 8)])
def test_resizing_is_bilinear_without_antialias(shape: tuple[int, int, int, int]) -> None:
    height, width, rows, columns = shape
    pixels = noise(height, width)
    result = resize(pixels, rows, columns).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(result, slow_resize(pixels, rows, columns), atol=1e-3)


FLOAT = np.float32


def slow_resize_from_corners(pixels: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Bilinear between the four pixels around row y height / rows and column x width / columns, one output pixel at a
    time, in float32: first along a row, then between two rows."""
    height, width = pixels.shape[:2]
    out = np.zeros((rows, columns, 3), np.float32)
    pixels = pixels.astype(np.float32)
    for row in range(rows):
        y = FLOAT(row) * FLOAT(height / rows)
        top, below = int(y), min(int(y) + 1, height - 1)
        for column in range(columns):
            x = FLOAT(column) * FLOAT(width / columns)
            left, right = int(x), min(int(x) + 1, width - 1)
            upper = pixels[top, left] + (pixels[top, right] - pixels[top, left]) * FLOAT(x - left)
            lower = pixels[below, left] + (pixels[below, right] - pixels[below, left]) * FLOAT(x - left)
            out[row, column] = upper + (lower - upper) * FLOAT(y - top)
    return out


def jpeg(height: int, width: int, mode: str, seed: int) -> bytes:
    bands = {"RGB": 3, "L": 1, "CMYK": 4}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, bands), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode).save(file, "JPEG", quality=90)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize(
    "height, width",
    [
        *(
            (375, 500),
            (500, 375),
            (300, 40),
            (40, 300),
            (900, 60),
            (9, 301),
            (301, 9),
            (24, 24),
            (28, 28),
            (27, 29),
        ),
        *((48, 48), (49, 47), (12, 12), (5, 7), (1, 1), (1, 8), (8, 1), (2, 3), (700, 23), (130, 260)),
    ],
)
def test_full_scale_images_are_those_of_a_slow_resize(height: int, width: int, mode: str) -> None:
    """Bit by bit: sixty JPEG files, each a training image, cropped and mostly flipped, and an evaluation image."""
    data = resnet("resnet", "data.image_size=24", "data.eval_resize=28", "data.flip=0.8").data
    pixels = decode(jpeg(height, width, mode, seed=height + width))
    rng = np.random.default_rng(height)
    top, left, rows, columns = draw_crop(height, width, NONE, data, rng)
    crop = pixels[top : top + rows, left : left + columns]
    crop = crop[:, ::-1] if rng.random() < data.flip else crop
    found = for_training(pixels, NONE, data, np.random.default_rng(height)).permute(1, 2, 0).numpy()
    assert np.array_equal(found, slow_resize_from_corners(crop, 24, 24))
    rows = 28 if height <= width else math.floor(height * (28 / width))
    columns = 28 if width <= height else math.floor(width * (28 / height))
    top, left = (rows - 24) // 2, (columns - 24) // 2
    found = for_evaluation(pixels, data).permute(1, 2, 0).numpy()
    whole = slow_resize_from_corners(pixels, rows, columns)
    assert np.array_equal(found, whole[top : top + 24, left : left + 24])


def test_read_only_pixels_are_welcome() -> None:
    pixels = noise(6, 6)
    pixels.flags.writeable = False
    assert resize(pixels, 6, 6).shape == (3, 6, 6)


def test_crops_stay_inside_and_keep_area_aspect_and_object() -> None:
    data = resnet("resnet").data
    rng = np.random.default_rng(0)
    box = np.array([[0.6, 0.6, 0.9, 0.9]], dtype=np.float32)
    for _ in range(300):
        top, left, rows, columns = crop = draw_crop(90, 120, box, data, rng)
        assert top >= 0 and left >= 0 and top + rows <= 90 and left + columns <= 120
        assert 0.05 <= rows * columns / (90 * 120) <= 1.0
        assert covered_share(crop, 90, 120, box) >= 0.1
        if rows > 15:
            assert 0.70 <= columns / rows <= 1.40


def test_the_whole_image_is_taken_when_no_crop_suits() -> None:
    data = resnet("resnet").data
    data.crop_covers = 1.1
    assert draw_crop(20, 30, NONE, data, np.random.default_rng(0)) == (0, 0, 20, 30)


def test_the_covered_share_is_the_largest_over_the_boxes() -> None:
    boxes = np.array([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 0.5]], dtype=np.float32)
    assert covered_share((0, 5, 5, 5), 10, 10, boxes) == pytest.approx(1.0)
    assert covered_share((5, 0, 5, 5), 10, 10, boxes) == pytest.approx(0.5)
    assert covered_share((0, 0, 5, 5), 10, 10, NONE) == pytest.approx(0.25)


def test_a_training_image_is_a_flipped_resized_crop() -> None:
    data = resnet("resnet_mini").data
    data.crop_attempts, data.flip = 0, 1.0
    pixels = noise(24, 24)
    result = for_training(pixels, NONE, data, np.random.default_rng(0)).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(result, slow_resize(pixels[:, ::-1], 20, 20), atol=1e-3)


@pytest.mark.parametrize(("height", "width"), [(300, 451), (451, 300), (256, 256)])
def test_an_evaluation_image_is_the_centre_of_the_shorter_side_at_256(height: int, width: int) -> None:
    data = resnet("resnet").data
    pixels = noise(height, width)
    rows = 256 if height <= width else math.floor(height * 256 / width)
    columns = 256 if width <= height else math.floor(width * 256 / height)
    whole = resize(pixels, rows, columns, half_pixel_centers=data.half_pixel_centers)
    top, left = (rows - 224) // 2, (columns - 224) // 2
    assert torch.equal(for_evaluation(pixels, data), whole[:, top : top + 224, left : left + 224])


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_every_jpeg_decodes_to_three_channels(mode: str) -> None:
    stream = io.BytesIO()
    Image.new(mode, (6, 4)).save(stream, format="JPEG")
    assert decode(stream.getvalue()).shape == (4, 6, 3)


def test_grey_pixels_are_repeated() -> None:
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    assert as_rgb(grey).shape == (2, 3, 3) and (as_rgb(grey)[..., 2] == grey[..., 0]).all()
