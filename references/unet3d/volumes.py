"""Volume transforms: resampling and normalisation before the clock, crops and augmentation on it."""

from __future__ import annotations

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional

from train_bench.references.unet3d.config import Data

KEPT_COMPONENTS = 2
"""Connected components per class that a crop may be placed around: those with the largest boxes."""

Place = tuple[int, int, int]
"""First voxel of a crop on each axis."""


def resample(
    image: np.ndarray, label: np.ndarray, spacing: tuple[float, ...], target: list[float]
) -> tuple[np.ndarray, np.ndarray]:
    """float32 and uint8 (d, h, w) from `spacing` to `target` millimetres per voxel: trilinear with aligned
    corners, and nearest. The new side is the truncated int(spacing / target * side)."""
    if np.array_equal(np.array(spacing, np.float32), np.array(target, np.float32)):
        return image, label
    shape = tuple(
        int(have / want * side) for have, want, side in zip(spacing, target, image.shape, strict=True)
    )
    volume = functional.interpolate(
        torch.from_numpy(image)[None, None], size=shape, mode="trilinear", align_corners=True
    )
    classes = functional.interpolate(torch.from_numpy(label)[None, None], size=shape, mode="nearest")
    return volume[0, 0].numpy(), classes[0, 0].numpy()


def normalize(image: np.ndarray, data: Data) -> np.ndarray:
    """float32: clipped, `mean` subtracted, divided by `deviation`; None means the volume's own."""
    if data.clip is not None:
        image = np.clip(image, np.float32(data.clip[0]), np.float32(data.clip[1]))
    mean = np.float32(image.mean(dtype=np.float64) if data.mean is None else data.mean)
    deviation = np.float32(image.std(dtype=np.float64) if data.deviation is None else data.deviation)
    return (image - mean) / deviation


def pad_to(volume: np.ndarray, shape: list[int]) -> np.ndarray:
    """(d, h, w) with its edge values repeated until it has at least `shape`, floor(half) of them before."""
    missing = [max(0, wanted - side) for wanted, side in zip(shape, volume.shape, strict=True)]
    return np.pad(volume, [(lack // 2, lack - lack // 2) for lack in missing], mode="edge")


def foreground_boxes(label: np.ndarray, classes: int) -> np.ndarray:
    """int32 (classes - 1, 2, 6): first voxel and end on each axis of the two largest boxes around connected
    components (faces touch) of every class but the background; -1 where there is none.

    Looks for components inside the box around a class only, which a full volume is much larger than.
    """
    boxes = np.full((classes - 1, KEPT_COMPONENTS, 6), -1, dtype=np.int32)
    around = ndimage.find_objects(label, max_label=classes - 1)
    for number, inside in enumerate(around, start=1):
        if inside is None:
            continue
        components, _ = ndimage.label(label[inside] == number)
        corners = [
            [part.start + outer.start for part, outer in zip(parts, inside, strict=True)]
            + [part.stop + outer.start for part, outer in zip(parts, inside, strict=True)]
            for parts in ndimage.find_objects(components)
        ]
        corners.sort(key=lambda box: -int(np.prod(np.subtract(box[3:], box[:3]))))
        kept = corners[:KEPT_COMPONENTS]
        boxes[number - 1, : len(kept)] = kept
    return boxes


def random_place(size: tuple[int, ...], shape: list[int], rng: np.random.Generator) -> Place:
    """The start of a crop, uniform in [0, size - shape) on each axis, 0 where the two are equal."""
    return tuple(  # type: ignore[return-value]
        int(rng.integers(0, whole - side)) if whole > side else 0
        for whole, side in zip(size, shape, strict=True)
    )


def place_around(
    boxes: np.ndarray, size: tuple[int, ...], shape: list[int], rng: np.random.Generator
) -> Place:
    """Start of a crop around a random component of a random class: shifted at random so that it contains the box, or
    lies inside a larger one, then moved into the volume."""
    present = [class_boxes[class_boxes[:, 0] >= 0] for class_boxes in boxes if class_boxes[0, 0] >= 0]
    candidates = present[int(rng.integers(len(present)))]
    box = candidates[int(rng.integers(len(candidates)))]
    place = []
    for axis, side in enumerate(shape):
        first, end = int(box[axis]), int(box[axis + 3])
        room = side - (end - first)
        shift = int(rng.integers(0, abs(room))) if room else 0
        start = first - shift if room > 0 else first + shift
        place.append(min(max(start, 0), size[axis] - side))
    return place[0], place[1], place[2]


def augment(
    image: np.ndarray, label: np.ndarray, data: Data, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """float32 and uint8 (1, d, h, w): flips, brightness, noise, in the order of the reference.

    The brightness factor is 1 + f with f around 1, which doubles intensities rather than varying them: so
    does the reference.
    """
    for axis in (1, 2, 3):
        if rng.random() < data.flip:
            image, label = np.flip(image, axis), np.flip(label, axis)
    image = np.array(image, dtype=np.float32)
    label = np.array(label, dtype=np.uint8)
    if rng.random() < data.brightness:
        image *= np.float32(1.0 + rng.uniform(data.brightness_range[0], data.brightness_range[1]))
    if rng.random() < data.noise:
        deviation = np.float32(rng.uniform(data.noise_range[0], data.noise_range[1]))
        image += deviation * rng.standard_normal(image.shape, dtype=np.float32)
    return torch.from_numpy(image), torch.from_numpy(label)
