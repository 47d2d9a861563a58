"""The targets ask for more than answers that do not look at the image reach, and that of the scenes of digits for more
than fitted detectors without a network."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import needs
from tests.references import component_detector, window_detector
from tests.references.configs import ssd
from train_bench.references.parts import coco_ap
from train_bench.references.parts.coco import Annotations
from train_bench.references.ssd import data
from train_bench.references.ssd.config import Config
from train_bench.rules import ruleset

MARGIN = 0.08
"""By how much, at least, the target of the mini scenes exceeds what fitted detectors without a network reach."""

BCCD = needs.DATA / "bccd"


def target(name: str) -> float:
    return ruleset.load("mini-1.0").benchmark(name).target.thresholds[0].value


def mean_boxes(train: Annotations, steps: int) -> np.ndarray:
    """(n, 6) x, y, width, height as shares, score, label: per class the mean box of the training set, scored
    by how frequent the class is; with more than one step, boxes of the mean extent at that many places per
    axis, the middle ones scored highest."""
    image_of = np.repeat(np.arange(len(train.image_ids)), np.diff(train.first))
    shares = train.boxes / np.tile(train.sizes[image_of][:, ::-1], 2)
    found = []
    for label in np.unique(train.labels):
        mine = shares[train.labels == label]
        extent = (mine[:, 2:] - mine[:, :2]).mean(axis=0)
        frequent = len(mine) / len(shares)
        if steps == 1:
            found.append([*mine[:, :2].mean(axis=0), *extent, frequent, label])
            continue
        for places in itertools.product(np.linspace(0.0, 1.0, steps), repeat=2):
            corner = np.array(places) * (1.0 - extent)
            middle = 1.0 - np.abs(np.array(places) - 0.5).sum()
            found.append([*corner, *extent, frequent * (0.5 + middle / 2), label])
    return np.array(found)


def precision_of(boxes: np.ndarray, split: data.Split) -> float:
    """AP of the same boxes on every image of `split`."""
    rows = []
    found = split.annotations
    for image_id, (height, width) in zip(found.image_ids, found.sizes, strict=True):
        table = np.empty((len(boxes), 7))
        table[:, 0] = image_id
        table[:, 1:5] = boxes[:, :4] * [width, height, width, height]
        table[:, 5], table[:, 6] = boxes[:, 4], found.category_ids[boxes[:, 5].astype(int) - 1]
        rows.append(table)
    return coco_ap.average_precision(coco_ap.index(split.path), np.concatenate(rows))


def best_without_looking(config: Config) -> float:
    train, val = data.open_splits(config, Path(str(config.data_dir)))
    return max(precision_of(mean_boxes(train.annotations, steps), val) for steps in (1, 2, 3, 4, 6))


@pytest.mark.full
def test_no_answer_without_the_image_comes_near_the_mini_target(
    mini_ssd: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = best_without_looking(mini_ssd)
    with capsys.disabled():
        print(f"\nmAP of mean boxes {blind:.4f}, target {target('ssd_mini')}")  # noqa: T201
    assert 0.0 < blind < target("ssd_mini") / 2


def best_of_components(config: Config, capsys: pytest.CaptureFixture[str], **how: Any) -> float:
    """AP of the best classifier of what a threshold cuts out; prints all."""
    train, val = data.open_splits(config, Path(str(config.data_dir)))
    known, unseen = (
        [split.pixels(number) for number in range(len(split.annotations.image_ids))] for split in (train, val)
    )
    truth = coco_ap.index(val.path)
    reached = component_detector.average_precisions(
        train.annotations, known, val.annotations, unseen, truth, **how
    )
    with capsys.disabled():
        values = ", ".join(f"{name} {value['BBOX']:.4f}" for name, value in reached.items())
        print(f"\nmAP of components by {values}; target {target(config.benchmark)}")  # noqa: T201
    return max(value["BBOX"] for value in reached.values())


@pytest.mark.full
@pytest.mark.parametrize(
    "view",
    [
        component_detector.brightness,
        component_detector.local_contrast,
        component_detector.saturation,
        component_detector.mended,
    ],
)
def test_components_above_a_threshold_stay_below_the_mini_target(
    view: Callable[[np.ndarray, float], np.ndarray], mini_ssd: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = best_of_components(mini_ssd, capsys, view=view)
    assert 0.0 < reached < target("ssd_mini") - MARGIN


@pytest.mark.full
def test_boosted_trees_on_windows_stay_below_the_mini_target(
    mini_ssd: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    train, val = data.open_splits(mini_ssd, Path(str(mini_ssd.data_dir)))
    known, unseen = (
        [split.pixels(number) for number in range(len(split.annotations.image_ids))] for split in (train, val)
    )
    truth = coco_ap.index(val.path)
    boosted = window_detector.average_precision(train.annotations, known, val.annotations, unseen, truth)
    with capsys.disabled():
        print(f"\nmAP of boosted trees on windows {boosted:.4f}, target {target('ssd_mini')}")  # noqa: T201
    assert 0.0 < boosted < target("ssd_mini") - MARGIN


@pytest.mark.full
@needs.shared(BCCD)
def test_no_answer_without_the_image_comes_near_the_target_of_blood_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ssd("ssd_bccd", f"data_dir={tmp_path}")
    data.prepare(config, tmp_path, BCCD)
    blind = best_without_looking(config)
    with capsys.disabled():
        print(f"\nmAP of mean boxes {blind:.4f}, target {target('ssd_bccd')}")  # noqa: T201
    assert 0.0 < blind < target("ssd_bccd") / 2
