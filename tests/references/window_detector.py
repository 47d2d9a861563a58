"""A detector without features of its own: boosted trees say of windows on a grid what is in them, and a ridge
regression per class which of their pixels belong to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from pycocotools import mask as rle
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import Ridge
from torch.nn import functional
from torchvision.ops import box_iou, nms, roi_align

from train_bench.references.parts import coco_ap
from train_bench.references.parts.coco import Annotations

EXTENTS = 5
"""Widths and heights of windows, the centres of those of the training boxes; a fifth of one is the step."""

FOREGROUND_OVERLAP, BACKGROUND_OVERLAP = 0.6, 0.4
"""Overlap (IoU) with an object from which a window shows it, and below which it shows nothing."""

NEGATIVES, POSITIVES = 150, 100
"""Most windows of a training image that show nothing, and something."""

OVERLAP, KEPT = 0.4, 60
"""Of windows that overlap by more, the best scored stays; so many of an image and class are detections."""

SEEN, SHOWN, STRENGTH = 12, 14, 30.0
"""Pixels per side of what a regression sees of a window and of the mask that it gives, and its penalty."""

MASKED = 40
"""Most windows of a training image that regressions are fitted to, besides the boxes themselves."""

OUTLINED = 8
"""So many windows of an image and class get a mask."""

Image = np.ndarray
"""uint8 (height, width, 3)."""

Masks = Callable[[int], torch.Tensor]
"""Of the number of a training image its masks, uint8 (objects, height, width)."""


def average_precision(
    known: Annotations,
    images: Sequence[Image],
    annotations: Annotations,
    unseen: Sequence[Image],
    truth: coco_ap.COCO,
) -> float:
    """AP of boxes on the images `unseen` after fitting to `images`."""
    extents, trees = _fitted(known, images)
    rows = [
        [image_id, left, top, right - left, bottom - top, score, category]
        for image_id, category, scores, windows in _kept(trees, extents, annotations, unseen)
        for score, (left, top, right, bottom) in zip(scores, windows, strict=True)
    ]
    return coco_ap.average_precision(truth, np.array(rows))


def average_precisions(
    known: Annotations,
    images: Sequence[Image],
    masks: Masks,
    annotations: Annotations,
    unseen: Sequence[Image],
    truth: coco_ap.COCO,
) -> dict[str, float]:
    """AP of masks (SEGM) on the images `unseen` after fitting to `images`, and of boxes around these masks (BBOX)."""
    extents, trees = _fitted(known, images)
    outlines = _outlines(known, images, masks, extents)
    pixels = dict(zip(annotations.image_ids.tolist(), unseen, strict=True))
    rows: list[dict[str, Any]] = []
    for image_id, category, scores, windows in _kept(trees, extents, annotations, unseen):
        image = pixels[int(image_id)]
        first = windows[:OUTLINED]
        label = int(np.flatnonzero(annotations.category_ids == category)[0]) + 1
        shapes = outlines[label].predict(_normalised(image, first))
        for score, window, shape in zip(scores, first, shapes, strict=False):
            whole = _placed(shape.reshape(SHOWN, SHOWN), window, image.shape[:2])
            if whole.any():
                coded = rle.encode(whole)
                row = {"image_id": int(image_id), "category_id": int(category), "score": float(score)}
                rows.append(row | {"bbox": rle.toBbox(coded).tolist(), "segmentation": coded})
    kinds = {"BBOX": "bbox", "SEGM": "segm"}
    return {name: coco_ap.average_precision(truth, rows, kind) for name, kind in kinds.items()}


def _fitted(known: Annotations, images: Sequence[Image]) -> tuple[np.ndarray, HistGradientBoostingClassifier]:
    """Widths and heights of windows, and what says of one what it shows."""
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
    return extents, trees


def _kept(
    trees: HistGradientBoostingClassifier,
    extents: np.ndarray,
    annotations: Annotations,
    unseen: Sequence[Image],
) -> Iterator[tuple[Any, Any, np.ndarray, np.ndarray]]:
    """Image id, category id, and the scores and windows that are kept, the best first."""
    for image_id, image in zip(annotations.image_ids, unseen, strict=True):
        windows = _windows(image, extents)
        shares = trees.predict_proba(_looks(image, windows))
        for category, scores in zip(annotations.category_ids, shares.T[1:], strict=True):
            best = nms(torch.from_numpy(windows), torch.from_numpy(scores), OVERLAP)[:KEPT].numpy()
            yield image_id, category, scores[best], windows[best]


def _outlines(
    known: Annotations, images: Sequence[Image], masks: Masks, extents: np.ndarray
) -> dict[int, Ridge]:
    """Per label a regression from what a window on such an object looks like to its mask in the window."""
    rng = np.random.default_rng(0)
    seen, inside, labels = [], [], []
    for number, image in enumerate(images):
        part = known.rows(number)
        boxes, windows = known.boxes[part].astype(float), _windows(image, extents)
        overlaps = box_iou(torch.from_numpy(windows), torch.from_numpy(boxes)).numpy()
        some = rng.permutation(np.flatnonzero(overlaps.max(axis=1) >= FOREGROUND_OVERLAP))[:MASKED]
        chosen = np.concatenate([windows[some], boxes])
        shown = np.concatenate([overlaps[some].argmax(axis=1), np.arange(len(boxes))])
        places = torch.from_numpy(np.column_stack([shown, chosen])).float()
        pooled = roi_align(masks(number).unsqueeze(1).float(), places, (SHOWN, SHOWN), 1.0, 2, aligned=True)
        seen.append(_normalised(image, chosen))
        inside.append(pooled.flatten(1).numpy())
        labels.append(known.labels[part][shown])
    every, shapes, label = np.concatenate(seen), np.concatenate(inside), np.concatenate(labels)
    return {
        int(each): Ridge(alpha=STRENGTH).fit(every[label == each], shapes[label == each])
        for each in np.unique(label)
    }


def _normalised(image: Image, boxes: np.ndarray) -> np.ndarray:
    """float32 (n, 144): grey levels without mean and contrast."""
    pixels = torch.from_numpy(image).float().mean(dim=2)[None, None] / 255
    cut = roi_align(pixels, [torch.from_numpy(boxes).float()], (SEEN, SEEN), sampling_ratio=2).flatten(1)
    centred = cut - cut.mean(dim=1, keepdim=True)
    return (centred / (centred.std(dim=1, keepdim=True) + 0.02)).numpy()


def _placed(shape: np.ndarray, window: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """uint8 (height, width), where the shape of a window exceeds one half."""
    left, top, right, bottom = (round(float(side)) for side in window)
    whole = np.zeros(size, dtype=np.uint8, order="F")
    stretched = functional.interpolate(
        torch.from_numpy(shape)[None, None].float(), size=(bottom - top, right - left), mode="bilinear"
    )
    part = whole[top:bottom, left:right]
    part[:] = (stretched[0, 0] > 0.5).numpy()[: part.shape[0], : part.shape[1]]
    return whole


def _samples(
    image: Image, boxes: np.ndarray, labels: np.ndarray, extents: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What training windows and the boxes themselves look like, and the class that they show; 0 is none."""
    windows = _windows(image, extents)
    overlaps = box_iou(torch.from_numpy(windows), torch.from_numpy(boxes.astype(float))).numpy()
    shown, best = overlaps.argmax(axis=1), overlaps.max(axis=1)
    some = rng.permutation(np.flatnonzero(best >= FOREGROUND_OVERLAP))[:POSITIVES]
    none = rng.permutation(np.flatnonzero(best < BACKGROUND_OVERLAP))[:NEGATIVES]
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
