"""Average precision as COCO defines it, by pycocotools: mean over IoU 0.50 to 0.95 and categories, at most
100 detections per image."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

Detection = dict[str, Any]
"""image_id, category_id, score, and bbox (x, y, width, height in pixels) or segmentation (run lengths)."""


class Gathers(Protocol):
    """Ranks; a `Parallel` is one of them."""

    def gather_objects(self, value: Any) -> list[Any] | None:
        """All ranks' values on rank 0, None elsewhere."""


def index(ground_truth: Path | Mapping[str, Any]) -> COCO:
    """The annotation file, or its content, as pycocotools wants it; prints nothing."""
    with _quiet():
        if isinstance(ground_truth, Path):
            return COCO(str(ground_truth))
        indexed = COCO()
        indexed.dataset = dict(ground_truth)
        indexed.createIndex()
        return indexed


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Detections and objects of some images, matched at each IoU.

    entries   int64 (n, 4): category, image, number of detections, number of objects
    scores    float64 (detections,), entry after entry
    found     bool (IoUs, detections): matched with an object
    ignored   bool (IoUs, detections): neither right nor wrong
    crowds    bool (objects,): not to be found
    """

    entries: np.ndarray
    scores: np.ndarray
    found: np.ndarray
    ignored: np.ndarray
    crowds: np.ndarray


def average_precision(
    truth: COCO,
    detections: Sequence[Detection] | np.ndarray,
    kind: str = "bbox",
    ranks: Gathers | None = None,
) -> float:
    """AP@[.5:.95] over all images of `truth`; `kind` is "bbox" or "segm". Without detections it is 0, and
    without ground truth it is 0, too. Boxes may come as an array (n, 7): image_id, x, y, width, height,
    score, category_id.

    With `ranks`, of the detections of all of them, on rank 0, elsewhere 0: each matches its own, which takes nearly all
    of the time. Every image has to have been given to exactly one rank.
    """
    images = (
        detections[:, 0]
        if isinstance(detections, np.ndarray)
        else [entry["image_id"] for entry in detections]
    )
    mine = match(truth, np.unique(images), detections, kind)
    gathered = [mine] if ranks is None else ranks.gather_objects(mine)
    if gathered is None or not any(len(share.scores) for share in gathered):
        return 0.0
    taken = np.concatenate([share.entries[:, 1] for share in gathered])
    rest = np.setdiff1d([entry["image_id"] for entry in truth.anns.values()], taken)
    return _accumulated(truth, [*gathered, match(truth, rest, [], kind)], kind)


def match(
    truth: COCO, images: np.ndarray, detections: Sequence[Detection] | np.ndarray, kind: str
) -> Matches:
    """Match detections in `images` with their objects; the order of detections breaks ties."""
    result = _evaluation(truth, _loaded(truth, detections), kind)
    result.params.imgIds = images.astype(np.int64).tolist()
    if len(images):  # pycocotools would prepare all
        with _quiet():
            result.evaluate()
    found = [each for each in result.evalImgs if each is not None]
    none = np.zeros((len(result.params.iouThrs), 0))
    return Matches(
        entries=np.array(
            [
                [each["category_id"], each["image_id"], len(each["dtIds"]), len(each["gtIds"])]
                for each in found
            ],
            np.int64,
        ).reshape(-1, 4),
        scores=np.concatenate([none[0], *(each["dtScores"] for each in found)]),
        found=np.concatenate([none, *(each["dtMatches"] for each in found)], axis=1) != 0,
        ignored=np.concatenate([none, *(each["dtIgnore"] for each in found)], axis=1) != 0,
        crowds=np.concatenate([none[0], *(each["gtIgnore"] for each in found)]) != 0,
    )


def _accumulated(truth: COCO, shares: Sequence[Matches], kind: str) -> float:
    """Mean precision of the matches of all images."""
    result = _evaluation(truth, None, kind)
    by_place: dict[tuple[int, int], dict[str, np.ndarray]] = {}
    for share in shares:
        ends = np.cumsum(share.entries[:, 2:], axis=0)[:-1].T
        parts = zip(
            np.split(share.scores, ends[0]),
            np.split(share.found, ends[0], axis=1),
            np.split(share.ignored, ends[0], axis=1),
            np.split(share.crowds, ends[1]),
            strict=True,
        )
        for (category, image), each in zip(share.entries[:, :2].tolist(), parts, strict=False):
            by_place[category, image] = dict(zip(MATCHED, each, strict=True))
    params = result.params
    places = itertools.product(params.catIds, params.imgIds)
    result.evalImgs, result._paramsEval = [by_place.get(place) for place in places], params
    with _quiet():
        result.accumulate()
    precision = result.eval["precision"]
    known = precision[precision > -1]
    return float(known.mean()) if known.size else 0.0


MATCHED = ("dtScores", "dtMatches", "dtIgnore", "gtIgnore")
"""pycocotools' names of what it accumulates of a category in an image."""


def _evaluation(truth: COCO, detected: COCO | None, kind: str) -> COCOeval:
    """Evaluation of objects of all sizes and at most 100 detections in an image, as AP alone is asked for."""
    with _quiet():
        result = COCOeval(truth, detected, kind)
    result.params.areaRng, result.params.areaRngLbl = result.params.areaRng[:1], ["all"]
    result.params.maxDets = result.params.maxDets[-1:]
    return result


def _loaded(truth: COCO, detections: Sequence[Detection] | np.ndarray) -> COCO:
    if not len(detections):
        return index({"annotations": []})
    given = detections if isinstance(detections, np.ndarray) else [dict(entry) for entry in detections]
    with _quiet():
        return truth.loadRes(given)


def _quiet() -> contextlib.redirect_stdout[io.StringIO]:
    """pycocotools prints what it does."""
    return contextlib.redirect_stdout(io.StringIO())
