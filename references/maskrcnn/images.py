"""Image transforms: target size, resizing, flipping, batching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from train_bench.references.maskrcnn.proposals import Size
from train_bench.references.maskrcnn.targets import Objects, Polygons

MULTIPLE = 32
"""Padded batches have sides that every level of the pyramid divides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Images (samples, 3, h, w), the means subtracted, padded with 0 at the right and the bottom; their
    sizes without padding; in training their objects, in an evaluation their numbers."""

    images: Tensor
    sizes: list[Size]
    objects: list[Objects]
    indices: list[int]

    def pin_memory(self) -> Batch:
        """In memory that a GPU reads directly; a loader asks for it by this name."""
        objects = [each.pin_memory() for each in self.objects]
        return replace(self, images=self.images.pin_memory(), objects=objects)


def resized(height: int, width: int, shortest: int, longest: int) -> Size:
    """The size in the network: the shorter side `shortest`, unless the longer one would exceed `longest`."""
    short, long = min(height, width), max(height, width)
    if long / short * shortest > longest:
        shortest = round(longest * short / long)
    if short == shortest:
        return height, width
    if height < width:
        return shortest, int(shortest * width / height)
    return int(shortest * height / width), shortest


def to_network(pixels: np.ndarray, size: Size, means: Sequence[float], *, flip: bool) -> Tensor:
    """uint8 (height, width, 3) in RGB -> float32 (3, *size) in BGR: PIL's bilinear filter, then the flip."""
    rows, columns = size
    image = Image.fromarray(pixels)
    if image.size != (columns, rows):
        image = image.resize((columns, rows), Image.Resampling.BILINEAR)
    array = np.asarray(image)[:, ::-1, ::-1] if flip else np.asarray(image)[:, :, ::-1]
    tensor = torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1))).float()
    return tensor.sub_(torch.tensor(means).view(3, 1, 1))


def boxes_to_network(boxes: Tensor, before: Size, after: Size, *, flip: bool) -> Tensor:
    """(n, 4) first and last pixels of an image of size `before`, in the image of size `after`."""
    down, across = after[0] / before[0], after[1] / before[1]
    moved = boxes * boxes.new_tensor([across, down, across, down])
    if not flip:
        return moved
    x1, y1, x2, y2 = moved.unbind(1)
    last = after[1] - 1
    return torch.stack([last - x2, y1, last - x1, y2], dim=1)


def masks_to_network(masks: Polygons | Tensor, before: Size, after: Size, *, flip: bool) -> Polygons | Tensor:
    """Polygons are scaled; uint8 (n, height, width) bitmaps are resized to the nearest pixel."""
    if isinstance(masks, Tensor):
        if before != after and len(masks):
            masks = functional.interpolate(masks.unsqueeze(1), size=after, mode="nearest").squeeze(1)
        return masks.flip(2) if flip else masks
    scale = np.array([after[1] / before[1], after[0] / before[0]])
    return [[_moved(part, scale, after[1] if flip else None) for part in parts] for parts in masks]


def _moved(part: np.ndarray, scale: np.ndarray, width: int | None) -> np.ndarray:
    points = part.reshape(-1, 2) * scale
    if width is not None:
        points[:, 0] = width - 1 - points[:, 0]
    return points.ravel()


def collate(images: Sequence[Tensor], objects: Sequence[Objects], indices: Sequence[int]) -> Batch:
    """Images of different sizes in one batch."""
    sizes = [(image.shape[1], image.shape[2]) for image in images]
    rows, columns = (-(-max(side) // MULTIPLE) * MULTIPLE for side in zip(*sizes, strict=True))
    padded = torch.zeros(len(images), 3, rows, columns)
    for place, image, (height, width) in zip(padded, images, sizes, strict=True):
        place[:, :height, :width] = image
    return Batch(images=padded, sizes=sizes, objects=list(objects), indices=list(indices))
