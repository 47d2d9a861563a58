"""Detections as rows of COCO results, in pixels of the original image."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pycocotools import mask as rle

from train_bench.references.maskrcnn.proposals import Detected, Size, paste


def results(detected: Detected, image_id: int, network: Size, original: Size) -> list[dict[str, Any]]:
    """One row per detection: image_id, category_id (the label from 1), score, bbox (x, y, width, height) and
    segmentation (RLE of `original` size)."""
    scale = torch.tensor([original[1] / network[1], original[0] / network[0]] * 2)
    boxes = detected.boxes.float().cpu() * scale
    if not len(boxes):
        return []
    pasted = [paste(mask, box, original) for mask, box in zip(detected.masks.cpu(), boxes, strict=True)]
    encoded = rle.encode(np.asfortranarray(np.stack(pasted, axis=2)))
    rows = zip(boxes.tolist(), detected.scores.tolist(), detected.labels.tolist(), encoded, strict=True)
    return [
        {
            "image_id": image_id,
            "category_id": label,
            "score": score,
            "bbox": [x1, y1, x2 - x1 + 1, y2 - y1 + 1],
            "segmentation": segmentation,
        }
        for (x1, y1, x2, y2), score, label, segmentation in rows
    ]
