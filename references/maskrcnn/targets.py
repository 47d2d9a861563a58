"""Training targets: matching and sampling of anchors and RoIs, and the masks of those sampled. Ren et al. (2015),
section 3.1.2; He et al. (2017), section 3.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from pycocotools import mask as rle
from torch import Tensor
from torchvision import ops

from train_bench.references.maskrcnn.boxes import as_edges, iou
from train_bench.references.maskrcnn.model import MASK_SIDE
from train_bench.references.parts import matching

Polygons = Sequence[Sequence[np.ndarray]]
"""Per object its polygons, each float64 (x, y, x, y, ...) in pixels of the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """The objects of one image in pixels of the image as the network sees it.

    boxes  float32 (n, 4), first and last pixels
    labels int64 (n,), from 1
    masks  polygons, or uint8 (n, height, width)
    seed   of the draws that are made for this image
    """

    boxes: Tensor
    labels: Tensor
    masks: Polygons | Tensor
    seed: int

    def to(self, device: torch.device) -> Objects:
        """With the tensors on `device`."""
        return self._with(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Objects:
        """With the tensors in memory that a GPU reads directly; a loader asks for it by this name."""
        return self._with(Tensor.pin_memory)

    def _with(self, change: Callable[[Tensor], Tensor]) -> Objects:
        return replace(
            self,
            boxes=change(self.boxes),
            labels=change(self.labels),
            masks=change(self.masks) if isinstance(self.masks, Tensor) else self.masks,
        )


def match(truth: Tensor, boxes: Tensor, *, above: float, below: float, claim: bool) -> Tensor:
    """int64 (boxes,): the object of `truth` matched to each box by IoU (`matching.match`)."""
    return matching.match(iou(truth, boxes), above=above, below=below, claim=claim)


def inside(anchors: Tensor, height: int, width: int) -> Tensor:
    """bool (anchors,): anchors inside the image."""
    first, last = anchors.split(2, dim=-1)
    return (first >= 0).all(dim=-1) & (last[:, 0] < width) & (last[:, 1] < height)


def draw(
    matches: Sequence[Tensor], count: int, positive_share: float, generators: Sequence[torch.Generator]
) -> list[tuple[Tensor, Tensor]]:
    """Per image the indices of at most `count` examples: objects up to their share, then background; both at random. A
    GPU is waited for once, for how many there are of both in all images."""
    masks = [mask for each in matches for mask in (each >= 0, each == matching.BACKGROUND)]
    totals = torch.stack([mask.sum() for mask in masks]).tolist()
    indices = [mask.nonzero_static(size=total).squeeze(1) for mask, total in zip(masks, totals, strict=True)]
    drawn = []
    for positive, negative, generator in zip(indices[::2], indices[1::2], generators, strict=True):
        positives = min(len(positive), int(count * positive_share))
        negatives = min(len(negative), count - positives)
        drawn.append((_some(positive, positives, generator), _some(negative, negatives, generator)))
    return drawn


def _some(indices: Tensor, count: int, generator: torch.Generator) -> Tensor:
    if count == len(indices):
        return indices
    order = torch.randperm(len(indices), generator=generator, device=indices.device)
    return indices[order[:count]]


def mask_targets(objects: Sequence[Objects], which: Sequence[Tensor], boxes: Sequence[Tensor]) -> Tensor:
    """float32 (n, 28, 28): per image the mask of object `which[i]` inside `boxes[i]`, of zeros and ones, all images one
    after the other. With polygons a GPU is waited for once, for the boxes of all images."""
    on_host: Sequence[Tensor] = ()
    if not all(isinstance(each.masks, Tensor) for each in objects):
        both = [
            torch.cat([w.unsqueeze(1).double(), b.double()], dim=1) for w, b in zip(which, boxes, strict=True)
        ]
        on_host = torch.cat(both).cpu().split([len(part) for part in both])
    return torch.cat(
        [
            _from_bitmaps(each.masks, which[image], boxes[image])
            if isinstance(each.masks, Tensor)
            else _from_polygons(each.masks, on_host[image])
            .to(boxes[image].device, non_blocking=True)
            .to(boxes[image].dtype)
            for image, each in enumerate(objects)
        ]
    )


def _from_bitmaps(masks: Tensor, which: Tensor, boxes: Tensor) -> Tensor:
    """A pixel of a target is the average of those it covers, rounded."""
    rois = torch.cat([which.unsqueeze(1).to(boxes.dtype), as_edges(boxes)], dim=1)
    pooled = ops.roi_align(masks.unsqueeze(1).to(boxes.dtype), rois, MASK_SIDE, aligned=True)
    return (pooled.squeeze(1) >= 0.5).to(boxes.dtype)


def _from_polygons(masks: Polygons, placed: Tensor) -> Tensor:
    """uint8 (n, 28, 28): the polygon moved to the corner of the box, scaled to 28 pixels and rasterised by the COCO
    API; `placed` (n, 5) are the numbers of objects and their boxes, float64 on the host."""
    if not len(placed):
        return torch.zeros((0, MASK_SIDE, MASK_SIDE), dtype=torch.uint8)
    which, corners = placed[:, 0].long(), placed[:, 1:].numpy()
    scales = MASK_SIDE / np.maximum(corners[:, 2:] - corners[:, :2], 1.0)
    encoded = []
    for index, corner, scale in zip(which.tolist(), corners[:, :2], scales, strict=True):
        moved = [((part.reshape(-1, 2) - corner) * scale).ravel().tolist() for part in masks[index]]
        encoded.append(rle.merge(rle.frPyObjects(moved, MASK_SIDE, MASK_SIDE)))
    decoded = rle.decode(encoded).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(decoded))
