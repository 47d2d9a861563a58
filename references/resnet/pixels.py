"""Conversion of bytes to pixels."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def decode(encoded: bytes | memoryview) -> np.ndarray:
    """JPEG or PNG bytes -> uint8 (height, width, 3) in RGB."""
    with Image.open(io.BytesIO(encoded)) as image:
        return np.array(image.convert("RGB"))


def as_rgb(pixels: np.ndarray) -> np.ndarray:
    """uint8 (height, width, 1 or 3) -> (height, width, 3); grey is repeated."""
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
