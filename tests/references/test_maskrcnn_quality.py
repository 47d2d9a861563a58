"""Average precision of boxes and masks, against pycocotools asked directly about the same detections."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as rle
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from tests.selection import others_in_full
from train_bench.references.parts import coco_ap

KINDS = ("bbox", "segm")


def asked_directly(path: Path, rows: list[dict[str, Any]], kind: str) -> float:
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(path))
        result = COCOeval(truth, truth.loadRes([dict(row) for row in rows]), kind)
        result.evaluate()
        result.accumulate()
        result.summarize()
    return float(result.stats[0])


def shaken(path: Path, seed: int) -> list[dict[str, Any]]:
    """The truth with shifted boxes and masks, wrong classes, misses and inventions."""
    rng = np.random.default_rng(seed)
    rows = []
    for entry in json.loads(path.read_text())["annotations"]:
        if rng.random() < 0.2:
            continue
        shift = [int(value) for value in rng.integers(-3, 4, 2)]
        bitmap = rle.decode(rle.frPyObjects(entry["segmentation"], *entry["segmentation"]["size"]))
        moved = np.asfortranarray(np.roll(bitmap, shift, axis=(0, 1)))
        x, y, width, height = entry["bbox"]
        rows.append(
            {
                "image_id": entry["image_id"],
                "category_id": int(rng.integers(1, 4)) if rng.random() < 0.2 else entry["category_id"],
                "score": float(rng.random()),
                "bbox": [x + shift[1], y + shift[0], width + float(rng.normal()), height],
                "segmentation": rle.encode(moved),
            }
        )
    return rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", others_in_full([0, 1], [0]))
def test_the_same_detections_have_the_same_precision(silhouettes_folder: Path, kind: str, seed: int) -> None:
    path = silhouettes_folder / "instances_val.json"
    rows = shaken(path, seed)
    ours = coco_ap.average_precision(coco_ap.index(path), rows, kind)
    assert 0.1 < ours < 0.9
    assert ours == pytest.approx(asked_directly(path, rows, kind), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_without_detections_or_without_truth_and_an_empty_image(
    silhouettes_folder: Path, tmp_path: Path, kind: str
) -> None:
    content = json.loads((silhouettes_folder / "instances_val.json").read_text())
    content["annotations"] = [
        entry for entry in content["annotations"] if entry["category_id"] != 3 and entry["image_id"] != 1
    ]
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(content))
    rows = [row for row in shaken(silhouettes_folder / "instances_val.json", 0) if row["category_id"] != 2]
    assert {row["category_id"] for row in rows} == {1, 3} and 1 in {row["image_id"] for row in rows}
    ours = coco_ap.average_precision(coco_ap.index(path), rows, kind)
    assert ours == pytest.approx(asked_directly(path, rows, kind), abs=1e-6)
    assert 0.0 < ours <= 0.5  # class 2 counts as nothing found, class 3 not at all


@pytest.mark.parametrize("kind", KINDS)
def test_no_detection_is_nothing_found(silhouettes_folder: Path, kind: str) -> None:
    assert (
        coco_ap.average_precision(coco_ap.index(silhouettes_folder / "instances_val.json"), [], kind) == 0.0
    )
