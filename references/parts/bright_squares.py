"""Synthetic images with boxes: a bright square on each, whose colour is its class. These can be learnt."""

from __future__ import annotations

import torch
from torch import Tensor


def bright_squares(side: int, classes: int, samples: int, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """uint8 (samples, 3, side, side), float32 (samples, 4) corners in pixels, int64 (samples,) classes from 1. From a
    generator of its own; reads nothing."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(120, 256, (classes, 3, 1, 1), generator=generator, dtype=torch.uint8)
    images = torch.randint(0, 100, (samples, 3, side, side), generator=generator, dtype=torch.uint8)
    boxes, labels = [], []
    for image in images:
        label = int(torch.randint(classes, (1,), generator=generator))
        extent = int(torch.randint(side // 4, side // 2, (1,), generator=generator))
        top, left = torch.randint(0, side - extent, (2,), generator=generator).tolist()
        image[:, top : top + extent, left : left + extent] = colours[label]
        boxes.append([left, top, left + extent, top + extent])
        labels.append(label + 1)
    return images, torch.tensor(boxes, dtype=torch.float32), torch.tensor(labels)
