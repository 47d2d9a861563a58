"""What methods that learn no features reach on the same split, beside the mini target."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy import ndimage
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from tests.references import gradients
from train_bench.references.resnet import data
from train_bench.references.resnet.config import Config
from train_bench.rules import ruleset

TARGET = ruleset.load("mini-1.0").benchmark("resnet_mini").target.thresholds[0].value
MARGIN = 0.05
SHIFTS = (-4, 0, 4)
CROP = 16
"""Rows and columns to which a digit is brought that was cut out."""


def levels(images) -> np.ndarray:
    """Grey levels from 0 to 1, float64 (images, 28, 28)."""
    return np.stack([images[index][0][..., 0] for index in range(len(images.labels))]) / 255.0


def rows(pixels: np.ndarray, *, pool: int = 1) -> np.ndarray:
    """One row per image, the mean of each `pool` x `pool` pixels."""
    count, side, _ = pixels.shape
    return pixels.reshape(count, side // pool, pool, side // pool, pool).mean(axis=(2, 4)).reshape(count, -1)


@pytest.mark.full
def test_methods_that_learn_no_features_stay_below_the_mini_target(
    mini: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nearest neighbours are also given every training image shifted by up to four pixels."""
    train, val = data.open_images(mini)
    x, y, unseen, truth = levels(train), train.labels, levels(val), val.labels
    shifted = [np.roll(x, shift, axis=(1, 2)) for shift in itertools.product(SHIFTS, SHIFTS)]

    def accuracy(method, known, labels, *, pool: int = 1) -> float:
        return method.fit(rows(known, pool=pool), labels).score(rows(unseen, pool=pool), truth)

    found = {
        "logistic regression": max(
            accuracy(LogisticRegression(C=c, max_iter=300), x, y) for c in (0.01, 0.1)
        ),
        "boosted trees": accuracy(HistGradientBoostingClassifier(max_iter=60, random_state=0), x, y, pool=2),
        "nearest neighbours": max(accuracy(KNeighborsClassifier(k), x, y) for k in (1, 3, 5)),
        "nearest neighbours of shifted copies": max(
            accuracy(KNeighborsClassifier(k), np.concatenate(shifted), np.tile(y, len(shifted)))
            for k in (1, 3)
        ),
    }
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {value:.4f}" for name, value in found.items()), f"target {TARGET}")  # noqa: T201
    assert max(found.values()) < TARGET - MARGIN


def largest_part(image: np.ndarray) -> np.ndarray:
    """The largest connected part of an image, cut out and brought to one size."""
    parts, _ = ndimage.label(image > 0, structure=np.ones((3, 3)))
    only = np.where(parts == np.bincount(parts.ravel())[1:].argmax() + 1, image, 0.0)
    rows, columns = (np.flatnonzero(only.any(axis=axis)) for axis in (1, 0))
    cut = only[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return ndimage.zoom(cut / cut.max(), [CROP / side for side in cut.shape], order=1)


@pytest.mark.full
def test_gradients_stay_below_the_mini_target(mini: Config, capsys: pytest.CaptureFixture[str]) -> None:
    """Support vector machines with a Gaussian kernel, on images as they are and on what is connected in them, with a
    stroke opened away or not."""
    train, val = data.open_images(mini)
    x, unseen = levels(train), levels(val)

    def accuracy(look: Callable[[np.ndarray], np.ndarray]) -> float:
        known, asked = (
            gradients.histograms(np.stack([look(image) for image in images])) for images in (x, unseen)
        )
        return float(SVC(C=10).fit(known, train.labels).score(asked, val.labels))

    found = {
        "whole images": accuracy(np.asarray),
        "their largest part": accuracy(largest_part),
        "after an opening": accuracy(lambda image: largest_part(ndimage.grey_opening(image, (2, 2)))),
    }
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {value:.4f}" for name, value in found.items()), f"target {TARGET}")  # noqa: T201
    assert max(found.values()) < TARGET - MARGIN
