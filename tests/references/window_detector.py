"""A detector without features of its own: boosted trees say of windows on a grid what is in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingClassifier
from torchvision.ops import box_iou, nms, roi_align

from train_bench.references.parts import coco_ap
from train_bench.references.parts.coco import Annotations

EXTENTS = 5
"""Widths and heights of windows, the centres of those of the training boxes; a fifth of one is the step."""

LEAST, MOST = 0.6, 0.4
"""Overlap (IoU) with an object from which a window shows it, and below which it shows nothing."""

NEGATIVES, POSITIVES = 150, 100
"""Most windows of a training image that show nothing, and something."""

OVERLAP, KEPT = 0.4, 60
"""Of windows that overlap by more, the best scored stays; so many of an image and class are detections."""

Image = np.ndarray
"""uint8 (height, width, 3)."""


def average_precision(
    known: Annotations,
    images: Sequence[Image],
    asked: Annotations,
    unseen: Sequence[Image],
    truth: coco_ap.COCO,
) -> float:
    """AP of boxes on the images `unseen` after fitting to `images`."""
    extents = (
        KMeans(EXTENTS, n_init=3, random_state=0)
        .fit(known.boxes[:, 2:] - known.boxes[:, :2])
        .cluster_centers_
    )
    rng = np.random.default_rng(0)
    samples = [
        _samples(image, known.boxes[known.rows(number)], known.labels[known.rows(number)], extents, rng)
        for number, image in enumerate(images)
    ]
    trees = HistGradientBoostingClassifier(max_iter=100, random_state=0)
    trees.fit(np.concatenate([seen for seen, _ in samples]), np.concatenate([shown for _, shown in samples]))
    rows = []
    for image_id, image in zip(asked.image_ids, unseen, strict=True):
        windows = _windows(image, extents)
        shares = trees.predict_proba(_looks(image, windows))
        for category, scores in zip(asked.category_ids, shares.T[1:], strict=True):
            for at in nms(torch.from_numpy(windows), torch.from_numpy(scores), OVERLAP)[:KEPT].tolist():
                left, top, right, bottom = windows[at]
                rows.append([image_id, left, top, right - left, bottom - top, scores[at], category])
    return coco_ap.average_precision(truth, np.array(rows))


def _samples(
    image: Image, boxes: np.ndarray, labels: np.ndarray, extents: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What training windows and the boxes themselves look like, and the class that they show; 0 is none."""
    windows = _windows(image, extents)
    overlaps = box_iou(torch.from_numpy(windows), torch.from_numpy(boxes.astype(float))).numpy()
    shown, best = overlaps.argmax(axis=1), overlaps.max(axis=1)
    some = rng.permutation(np.flatnonzero(best >= LEAST))[:POSITIVES]
    none = rng.permutation(np.flatnonzero(best < MOST))[:NEGATIVES]
    looks = _looks(image, np.concatenate([windows[some], windows[none], boxes]))
    return looks, np.concatenate([labels[shown[some]], np.zeros(len(none), dtype=labels.dtype), labels])


def _windows(image: Image, extents: np.ndarray) -> np.ndarray:
    """float64 (n, 4): x_min, y_min, x_max, y_max."""
    height, width = image.shape[:2]
    found = []
    for across, down in extents:
        left = np.arange(0, max(width - across, 0) + 1, max(across / 5, 2))
        top = np.arange(0, max(height - down, 0) + 1, max(down / 5, 2))
        first = np.stack(np.meshgrid(left, top), axis=-1).reshape(-1, 2)
        found.append(np.concatenate([first, first + np.array([across, down])], axis=1))
    return np.concatenate(found)


def _looks(image: Image, boxes: np.ndarray) -> np.ndarray:
    """float32 (n, 68): 8 x 8 grey levels without their mean, the mean colour, and the contrast."""
    pixels = torch.from_numpy(image).float().permute(2, 0, 1).unsqueeze(0) / 255
    cut = roi_align(pixels, [torch.from_numpy(boxes).float()], (8, 8), sampling_ratio=2)
    grey = cut.mean(dim=1).flatten(1)
    centred = grey - grey.mean(dim=1, keepdim=True)
    return torch.cat([centred, cut.mean(dim=(2, 3)), grey.std(dim=1, keepdim=True)], dim=1).numpy()
