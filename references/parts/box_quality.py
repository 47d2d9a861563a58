"""Average precision over all ranks, from detected boxes as shares of the image."""

from __future__ import annotations

import numpy as np
from pycocotools.coco import COCO
from torch import Tensor

from train_bench.parallel import Parallel
from train_bench.references.parts import coco_ap
from train_bench.references.parts.coco import Annotations

Detections = tuple[Tensor, Tensor, Tensor]
"""Corners (n, 4) as shares of the image, scores (n,), classes int64 (n,) from 1."""

COLUMNS = 7
"""image_id, x, y, width, height (pixels of the original image), score, category_id: the rows that pycocotools
takes as an array."""


def rows(detections: Detections, annotations: Annotations, number: int) -> np.ndarray:
    """float64 (detections, 7) of image `number` of the annotation file."""
    corners, scores, labels = (part.double().cpu().numpy() for part in detections)
    height, width = annotations.sizes[number]
    corners = corners * [width, height, width, height]
    table = np.empty((len(scores), COLUMNS))
    table[:, 0] = annotations.image_ids[number]
    table[:, 1:3], table[:, 3:5] = corners[:, :2], corners[:, 2:] - corners[:, :2]
    table[:, 5] = scores
    table[:, 6] = annotations.category_ids[labels.astype(np.int64) - 1]
    return table


def average_precision(truth: COCO, mine: list[np.ndarray], parallel: Parallel) -> float:
    """bbox AP@[.5:.95] of all ranks' rows against all images of `truth` on rank 0; elsewhere 0. Every image has to have
    been given to exactly one rank."""
    return coco_ap.average_precision(truth, np.concatenate([np.empty((0, COLUMNS)), *mine]), ranks=parallel)
