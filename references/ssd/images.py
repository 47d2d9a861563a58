"""Image transforms: crop, flip, resizing and colour jitter of training, resizing of an evaluation.

Both transforms give uint8 pixels; the batch is normalised on the device. Resizing is Pillow's bilinear
filter, which changes the aspect ratio.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import functional

from train_bench.references.ssd.config import Data
from train_bench.references.ssd.crop import draw_crop


def for_training(
    pixels: np.ndarray,
    boxes: np.ndarray,
    data: Data,
    side: int,
    max_samples: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """uint8 (side, side, 3), the numbers of the boxes that are kept, and these boxes (n, 4).

    `pixels` is uint8 (height, width, 3), `boxes` (n > 0, 4) has corners as shares of the image. The crop is
    cut at whole pixels, rounded down.
    """
    height, width = pixels.shape[:2]
    crop, kept, boxes = draw_crop(boxes, max_samples, rng)
    left, right = int(crop[0] * width), int(crop[2] * width)
    top, bottom = int(crop[1] * height), int(crop[3] * height)
    pixels = pixels[top : max(bottom, top + 1), left : max(right, left + 1)]
    if rng.random() < data.flip:
        pixels = np.ascontiguousarray(pixels[:, ::-1])
        boxes = np.stack([1.0 - boxes[:, 2], boxes[:, 1], 1.0 - boxes[:, 0], boxes[:, 3]], axis=1)
    return np.asarray(jitter(resize(pixels, side), data, rng)), kept, boxes


def for_evaluation(pixels: np.ndarray, side: int) -> Tensor:
    """uint8 (height, width, 3) -> uint8 (3, side, side)."""
    return torch.from_numpy(np.array(resize(pixels, side))).permute(2, 0, 1).contiguous()


def resize(pixels: np.ndarray, side: int) -> Image.Image:
    """uint8 (height, width, 3) -> a square image."""
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR)


def jitter(image: Image.Image, data: Data, rng: np.random.Generator) -> Image.Image:
    """Random brightness, contrast, saturation and hue, in random order."""
    changes = (
        (brightness, 1.0, data.brightness),
        (contrast, 1.0, data.contrast),
        (functional.adjust_saturation, 1.0, data.saturation),
        (functional.adjust_hue, 0.0, data.hue),
    )
    for number in rng.permutation(len(changes)):
        change, middle, reach = changes[number]
        if reach:
            image = change(image, float(rng.uniform(middle - reach, middle + reach)))
    return image


def brightness(image: Image.Image, factor: float) -> Image.Image:
    """Away from black."""
    return Image.blend(Image.new("RGB", image.size), image, factor)


def contrast(image: Image.Image, factor: float) -> Image.Image:
    """Away from the mean grey level. As torchvision's `adjust_contrast`, whose mean is a sum in Python."""
    levels = np.frombuffer(image.convert("L").tobytes(), dtype=np.uint8)
    grey = int(levels.sum() / len(levels) + 0.5)
    return Image.blend(Image.new("RGB", image.size, (grey, grey, grey)), image, factor)
