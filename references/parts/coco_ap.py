"""Average precision as COCO defines it, by pycocotools: mean over IoU 0.50 to 0.95 and categories, at most
100 detections per image."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from train_bench.parallel import Parallel

Detection = dict[str, Any]
"""image_id, category_id, score, and bbox (x, y, width, height in pixels) or segmentation (run lengths)."""


def index(ground_truth: Path | Mapping[str, Any]) -> COCO:
    """The annotation file, or its content, as pycocotools wants it; prints nothing."""
    with contextlib.redirect_stdout(io.StringIO()):
        if isinstance(ground_truth, Path):
            return COCO(str(ground_truth))
        indexed = COCO()
        indexed.dataset = dict(ground_truth)
        indexed.createIndex()
        return indexed


def average_precision(truth: COCO, detections: Sequence[Detection] | np.ndarray, kind: str = "bbox") -> float:
    """AP@[.5:.95] over all images of `truth`; `kind` is "bbox" or "segm". Without detections it is 0, and
    without ground truth it is 0, too. Boxes may come as an array (n, 7): image_id, x, y, width, height,
    score, category_id."""
    if not len(detections) or not any(not entry.get("iscrowd", 0) for entry in truth.anns.values()):
        return 0.0
    with contextlib.redirect_stdout(io.StringIO()):
        given = detections if isinstance(detections, np.ndarray) else [dict(entry) for entry in detections]
        result = COCOeval(truth, truth.loadRes(given), kind)
        result.evaluate()
        result.accumulate()
    precision = result.eval["precision"][:, :, :, 0, -1]
    known = precision[precision > -1]
    return float(known.mean()) if known.size else 0.0


def gathered(parallel: Parallel, detections: list[Detection]) -> list[Detection]:
    """All ranks' detections in the order of their images on rank 0, nothing elsewhere. Every image must
    have been given to exactly one rank."""
    shares = parallel.gather_objects(detections)
    if shares is None:
        return []
    return sorted((entry for share in shares for entry in share), key=lambda entry: entry["image_id"])
