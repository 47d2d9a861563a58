"""The random crop and the detections of the single-shot detector."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.references.slow_boxes import encode
from train_bench.references.ssd.crop import draw_crop, overlap
from train_bench.references.ssd.detections import detect

BOXES = np.array([[0.1, 0.1, 0.3, 0.4], [0.5, 0.5, 0.9, 0.8]])


def test_crops_keep_boxes_by_their_centres_and_in_their_bounds():
    rng = np.random.default_rng(0)
    whole = 0
    for _ in range(300):
        crop, kept, boxes = draw_crop(BOXES, 1, rng)
        left, top, right, bottom = crop
        whole += crop == (0.0, 0.0, 1.0, 1.0)
        assert 0.5 <= (right - left) / (bottom - top) <= 2.0
        assert min(right - left, bottom - top) >= 0.3 - 1e-9
        centres = (BOXES[:, :2] + BOXES[:, 2:]) / 2
        inside = [left < x < right and top < y < bottom for x, y in centres]
        assert kept.tolist() == np.flatnonzero(inside).tolist()
        assert len(kept)
        assert ((boxes >= 0) & (boxes <= 1)).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert 30 < whole < 290


def test_the_same_generator_draws_the_same_crop():
    first, second = (draw_crop(BOXES, 50, np.random.default_rng(5)) for _ in range(2))
    assert first[0] == second[0]
    assert first[2].tolist() == second[2].tolist()


def test_overlap_is_intersection_over_union():
    assert overlap([0.0, 0.0, 0.5, 0.5], (0.25, 0.25, 0.75, 0.75)) == pytest.approx(1 / 7)
    assert overlap([0.0, 0.0, 0.1, 0.1], (0.5, 0.5, 1.0, 1.0)) == pytest.approx(0.0)


def outputs(scores: list[list[float]], boxes: torch.Tensor, prior: torch.Tensor):
    return encode(boxes, prior).T, torch.tensor(scores).log().T


def test_weaker_boxes_of_a_class_that_overlap_are_suppressed_and_weak_scores_dropped():
    prior = torch.tensor([[0.3, 0.3, 0.2, 0.2]] * 3 + [[0.7, 0.7, 0.2, 0.2]])
    boxes = torch.tensor(
        [[0.2, 0.2, 0.4, 0.4], [0.2, 0.2, 0.4, 0.41], [0.2, 0.2, 0.4, 0.4], [0.6, 0.6, 0.8, 0.8]]
    )
    scores = [[0.09, 0.9, 0.01], [0.38, 0.6, 0.02], [0.28, 0.02, 0.7], [0.91, 0.045, 0.045]]
    corners, values, classes = detect(*outputs(scores, boxes, prior), prior)
    assert classes.tolist() == [1, 2]
    assert values.tolist() == pytest.approx([0.9, 0.7])
    assert corners[0].tolist() == pytest.approx([0.2, 0.2, 0.4, 0.4])


def test_an_image_of_background_has_no_detection():
    prior = torch.tensor([[0.3, 0.3, 0.2, 0.2]])
    corners, values, classes = detect(
        *outputs([[0.98, 0.01, 0.01]], torch.tensor([[0.2, 0.2, 0.4, 0.4]]), prior), prior
    )
    assert corners.shape == (0, 4)
    assert len(values) == len(classes) == 0
