"""A detector without a network: what is brighter or darker than a threshold and hangs together is cut out, and a
classifier that was fitted to the cut-outs of the training images says what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image as Picture
from pycocotools import mask as rle
from scipy import ndimage
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torchvision.ops import box_iou, nms

from train_bench.references.parts import coco_ap
from train_bench.references.parts.coco import Annotations

THRESHOLDS = 8
"""Per image, evenly between the 2nd and the 98th percentile of what is cut at them."""

SLACK = 0.25
"""By how much of it a side of a component may lie beyond the 1st and the 99th percentile of the training boxes."""

LEAST_OVERLAP = 0.6
"""Overlap (IoU) with an object from which a component shows it."""

PATCH = 10
"""Pixels per side of what a classifier sees of the grey levels, and of the component."""

MENDED = 5
"""Pixels; what is narrower is closed if it is dark, and opened if it is bright, by `mended`."""

OVERLAP, KEPT = 0.4, 100
"""Of components that overlap by more, the best scored stays; so many of an image and class are detections."""

Image = np.ndarray
"""uint8 (height, width, 3)."""

Mask = np.ndarray
"""bool, the component in its own box."""

Component = tuple[tuple[int, int, int, int], Mask, np.ndarray]
"""x_min, y_min, x_max, y_max; the mask; float32, what a classifier sees."""


def brightness(image: Image, extent: float) -> np.ndarray:
    """float64 (height, width), 0 to 255."""
    return image.mean(axis=2)


def local_contrast(image: Image, extent: float) -> np.ndarray:
    """Brightness less its mean in a square with sides of `extent` pixels."""
    grey = image.mean(axis=2)
    return grey - ndimage.uniform_filter(grey, round(extent))


def saturation(image: Image, extent: float) -> np.ndarray:
    """float64 (height, width): the largest less the smallest of the three channels."""
    return (image.max(axis=2) - image.min(axis=2)).astype(np.float64)


def mended(image: Image, extent: float) -> np.ndarray:
    """Brightness without dark cuts and bright strokes that are narrower than `MENDED` pixels."""
    square = (MENDED, MENDED)
    return ndimage.grey_opening(ndimage.grey_closing(image.mean(axis=2), square), square)


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "nearest neighbours": lambda: KNeighborsClassifier(5, weights="distance"),
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300)),
    "boosted trees": lambda: HistGradientBoostingClassifier(max_iter=60, random_state=0),
}


def average_precisions(
    known: Annotations,
    images: Sequence[Image],
    annotations: Annotations,
    unseen: Sequence[Image],
    truth: coco_ap.COCO,
    *,
    view: Callable[[Image, float], np.ndarray] = brightness,
    filled: Callable[[Mask], Mask] | None = None,
    shrink: int = 1,
) -> dict[str, dict[str, float]]:
    """Per classifier the AP of boxes (BBOX) on the images `unseen` after fitting to `images`, and with `filled`,
    which makes a mask of a component, that of masks (SEGM). `shrink` is the factor by which images are made
    smaller beforehand."""
    extents = (known.boxes[:, 2:] - known.boxes[:, :2]) / shrink
    sides = np.percentile(extents, (1, 99))
    looks, shown = [], []
    for number, image in enumerate(images):
        found = list(_components(_smaller(image, shrink), view, sides))
        looks += [look for _, _, look in found]
        part = known.rows(number)
        shown += _shown([box for box, _, _ in found], known.boxes[part] / shrink, known.labels[part])
    there = [list(_components(_smaller(image, shrink), view, sides)) for image in unseen]
    reached = {}
    for name, classifier in CLASSIFIERS.items():
        fitted = classifier().fit(np.array(looks), np.array(shown))
        rows = [
            {"image_id": image_id, "category_id": int(annotations.category_ids[label - 1]), **row}
            for image_id, image, found in zip(annotations.image_ids.tolist(), unseen, there, strict=True)
            for label, row in _detections(fitted, found, image.shape[:2], shrink, filled)
        ]
        reached[name] = {"BBOX": coco_ap.average_precision(truth, rows)}
        if filled is not None:
            reached[name]["SEGM"] = coco_ap.average_precision(truth, rows, "segm")
    return reached


def _smaller(image: Image, shrink: int) -> Image:
    return image if shrink == 1 else np.asarray(Picture.fromarray(image).reduce(shrink))


def _components(
    image: Image, view: Callable[[Image, float], np.ndarray], sides: np.ndarray
) -> Iterator[Component]:
    """Of each extent in each place the first."""
    levels = view(image, sides.mean())
    low, high = np.percentile(levels, (2, 98))
    known = set()
    for threshold in np.linspace(low, high, THRESHOLDS + 2)[1:-1]:
        for binary in (levels > threshold, levels < threshold):
            numbered, _ = ndimage.label(binary)
            for number, place in enumerate(ndimage.find_objects(numbered), start=1):
                rows, columns = place
                box = (columns.start, rows.start, columns.stop, rows.stop)
                extent = (columns.stop - columns.start, rows.stop - rows.start)
                fits = sides[0] * (1 - SLACK) <= min(extent) and max(extent) <= sides[1] * (1 + SLACK)
                if fits and box not in known:
                    known.add(box)
                    mask = numbered[place] == number
                    yield box, mask, _look(image[place], mask, sides.mean())


def _look(pixels: Image, mask: Mask, extent: float) -> np.ndarray:
    """Grey levels without mean and contrast, the mask, its extent and share of the box, its contrast and colour."""
    grey = pixels.mean(axis=2) / 255
    contrast = grey[mask].mean() - (grey[~mask].mean() if not mask.all() else grey.mean())
    patch = _patch(grey)
    patch = (patch - patch.mean()) / (patch.std() + 0.02) / 4
    rest = [*(np.array(mask.shape) / extent), mask.mean(), contrast, *(pixels[mask].mean(axis=0) / 255)]
    return np.concatenate([patch.ravel(), _patch(mask).ravel(), rest]).astype(np.float32)


def _patch(values: np.ndarray) -> np.ndarray:
    picture = Picture.fromarray(values.astype(np.float32))
    return np.asarray(picture.resize((PATCH, PATCH), Picture.Resampling.BOX))


def _shown(boxes: Sequence[tuple[int, ...]], objects: np.ndarray, labels: np.ndarray) -> list[int]:
    """The class that each component shows; 0 is none."""
    if not boxes or not len(objects):
        return [0] * len(boxes)
    overlap = box_iou(torch.tensor(boxes).double(), torch.from_numpy(objects).double()).numpy()
    return np.where(overlap.max(axis=1) >= LEAST_OVERLAP, labels[overlap.argmax(axis=1)], 0).tolist()


def _detections(
    fitted: Any,
    found: Sequence[Component],
    size: tuple[int, int],
    shrink: int,
    filled: Callable[[Mask], Mask] | None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Label; score, bbox, and with `filled` segmentation of what is kept of the components of an image."""
    if not found:
        return
    boxes = torch.tensor([box for box, _, _ in found]).double()
    shares = fitted.predict_proba(np.array([look for _, _, look in found]))
    for label, scores in zip(fitted.classes_.tolist(), shares.T.astype(np.float64), strict=True):
        if label == 0:
            continue
        for at in nms(boxes, torch.from_numpy(scores), OVERLAP)[:KEPT].tolist():
            if scores[at] == 0.0:
                continue
            (left, top, right, bottom), mask, _ = found[at]
            box = [shrink * value for value in (left, top, right - left, bottom - top)]
            row: dict[str, Any] = {"score": float(scores[at]), "bbox": box}
            if filled is not None:
                whole = np.zeros(size, dtype=np.uint8, order="F")
                left, top, across, down = box
                large = filled(mask).repeat(shrink, axis=0).repeat(shrink, axis=1)
                whole[top : top + down, left : left + across] = large
                row["segmentation"] = rle.encode(whole)
            yield label, row
