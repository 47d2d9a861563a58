"""Boxes, proposals, targets and losses of instance segmentation on cases that are computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from train_bench.references.maskrcnn.boxes import base_anchors, clip, decode, encode, grid_anchors, iou, nms
from train_bench.references.maskrcnn.proposals import best_of_batch, paste, propose
from train_bench.references.maskrcnn.targets import (
    Objects,
    draw,
    inside,
    mask_targets,
    match,
)
from train_bench.references.parts.matching import BACKGROUND, BETWEEN


def test_a_pixel_belongs_to_both_ends_of_a_box() -> None:
    one = torch.tensor([[0.0, 0.0, 9.0, 9.0]])
    other = torch.tensor([[0.0, 0.0, 9.0, 4.0], [10.0, 0.0, 19.0, 9.0], [9.0, 9.0, 9.0, 9.0]])
    assert iou(one, other).tolist() == [[pytest.approx(0.5), 0.0, pytest.approx(0.01)]]


def test_suppression_counts_pixels_as_iou_does() -> None:
    torch.manual_seed(0)
    corner = torch.randint(0, 40, (200, 2)).float()
    boxes = torch.cat([corner, corner + torch.randint(0, 30, (200, 2))], dim=1)
    scores = torch.rand(200)
    kept: list[int] = []
    overlap = iou(boxes, boxes)
    for index in scores.argsort(descending=True).tolist():
        if all(overlap[index, better] <= 0.5 for better in kept):
            kept.append(index)
    assert nms(boxes, scores, 0.5).tolist() == kept


def test_anchors_are_those_of_the_python_code_of_faster_rcnn() -> None:
    assert base_anchors(128, 16).tolist() == [[-84, -40, 99, 55], [-56, -56, 71, 71], [-36, -80, 51, 95]]
    assert base_anchors(32, 4).tolist() == [[-22, -10, 25, 13], [-14, -14, 17, 17], [-10, -22, 13, 25]]


def test_anchors_go_row_by_row_with_the_ratios_of_a_position_together() -> None:
    anchors = grid_anchors(32, 4, 2, 3)
    assert anchors.shape == (18, 4)
    assert (anchors[3] - anchors[0]).tolist() == [4, 0, 4, 0]
    assert (anchors[9] - anchors[0]).tolist() == [0, 4, 0, 4]


def test_codes_are_those_of_the_paper_and_are_undone_by_decoding() -> None:
    box, target = torch.tensor([[0.0, 0.0, 9.0, 19.0]]), torch.tensor([[5.0, 0.0, 24.0, 9.0]])
    codes = encode(target, box, (10.0, 10.0, 5.0, 5.0))
    expected = [10 * (15 - 5) / 10, 10 * (5 - 10) / 20, 5 * math.log(2), 5 * math.log(0.5)]
    assert codes[0].tolist() == pytest.approx(expected)
    assert torch.allclose(decode(codes, box, (10.0, 10.0, 5.0, 5.0)), target, atol=1e-5)


def test_a_box_grows_by_no_more_than_62_and_a_half_in_one_decoding() -> None:
    grown = decode(torch.tensor([[0.0, 0.0, 50.0, 50.0]]), torch.tensor([[0.0, 0.0, 9.0, 9.0]]), (1, 1, 1, 1))
    assert float(grown[0, 2] - grown[0, 0] + 1) == pytest.approx(625.0)


def test_clipped_boxes_end_at_the_last_pixel() -> None:
    clipped = clip(torch.tensor([[-5.0, 3.0, 200.0, 50.0]]), torch.tensor(20.0), torch.tensor(100.0))
    assert clipped.tolist() == [[0, 3, 99, 19]]


def test_matches_are_object_background_or_between_and_every_object_claims_its_best_boxes() -> None:
    truth = torch.tensor([[0.0, 0.0, 9.0, 9.0], [50.0, 50.0, 59.0, 59.0]])
    boxes = torch.tensor([
        [0.0, 0.0, 9.0, 9.0], [0.0, 0.0, 9.0, 4.0], [30.0, 30.0, 39.0, 39.0],
        [50.0, 50.0, 59.0, 51.0], [50.0, 58.0, 59.0, 59.0],
    ])  # fmt: skip
    assert match(truth, boxes, above=0.7, below=0.3, claim=True).tolist() == [0, BETWEEN, BACKGROUND, 1, 1]
    assert match(truth, boxes, above=0.5, below=0.5, claim=False).tolist() == [0, 0] + [BACKGROUND] * 3


def test_an_image_without_objects_is_all_background() -> None:
    assert match(torch.zeros(0, 4), torch.zeros(3, 4), above=0.7, below=0.3, claim=True).tolist() == [-1] * 3


def test_draws_respect_their_shares_and_follow_the_seed() -> None:
    matches = torch.tensor([0] * 50 + [BETWEEN] * 20 + [BACKGROUND] * 200)
    draws = draw([matches] * 3, 64, 0.25, [torch.Generator().manual_seed(seed) for seed in (1, 1, 2)])
    positive, negative = draws[0]
    assert (len(positive), len(negative)) == (16, 48)
    assert bool((matches[positive] >= 0).all()) and bool((matches[negative] == BACKGROUND).all())
    assert torch.equal(positive, draws[1][0]) and not torch.equal(positive, draws[2][0])
    (few,) = draw([matches[:52]], 64, 0.5, [torch.Generator()])
    assert (len(few[0]), len(few[1])) == (32, 0)


def test_anchors_that_cross_the_border_are_not_inside() -> None:
    anchors = torch.tensor([[0.0, 0.0, 9.0, 9.0], [-1.0, 0.0, 5.0, 5.0], [5.0, 5.0, 10.0, 9.0]])
    assert inside(anchors, 10, 10).tolist() == [True, False, False]


def test_the_best_candidates_are_taken_over_all_images_of_the_batch() -> None:
    boxes = [torch.arange(12.0).view(3, 4), torch.arange(8.0).view(2, 4)]
    kept = best_of_batch(boxes, [torch.tensor([0.1, 0.9, 0.8]), torch.tensor([0.2, 0.7])], 3)
    assert [part[:, 0].tolist() for part in kept] == [[4.0, 8.0], [4.0]]


def test_proposals_are_clipped_to_their_own_image_and_suppressed_within_a_level() -> None:
    anchors = [torch.tensor([[0.0, 0.0, 9.0, 9.0], [0.0, 0.0, 9.0, 8.0], [15.0, 15.0, 24.0, 24.0]])]
    logits = [torch.tensor([[1.0, 2.0, 0.0], [3.0, 1.0, 2.0]])]
    boxes, scores = propose(
        logits, [torch.zeros(2, 3, 4)], anchors, [(30, 30), (20, 18)], candidates=3, nms_above=0.7
    )
    assert boxes[0].tolist() == [[0, 0, 9, 8], [15, 15, 24, 24]]
    assert boxes[1].tolist() == [[0, 0, 9, 9], [15, 15, 17, 19]]
    assert scores[1].tolist() == [3.0, 2.0]


def objects(masks: object) -> Objects:
    return Objects(boxes=torch.zeros(1, 4), labels=torch.ones(1, dtype=torch.int64), masks=masks, seed=0)  # type: ignore[arg-type]


def test_polygons_and_bitmaps_give_the_same_mask_of_a_rectangle() -> None:
    bitmap = torch.zeros(1, 100, 100, dtype=torch.uint8)
    bitmap[0, 20:48, 10:66] = 1
    polygon = [[np.array([10.0, 20, 66, 20, 66, 48, 10, 48])]]
    which, box = torch.tensor([0]), torch.tensor([[10.0, 20.0, 66.0, 76.0]])
    half = torch.zeros(28, 28)
    half[:14] = 1
    last = torch.tensor([[10.0, 20.0, 65.0, 75.0]])
    found = mask_targets([objects(polygon), objects(bitmap)], [which, which], [box, last])
    assert torch.equal(found, torch.stack([half, half]))


def test_a_full_mask_is_pasted_onto_its_box_and_cut_at_the_border() -> None:
    inner = paste(torch.ones(28, 28), torch.tensor([20.0, 30.0, 47.0, 57.0]), (100, 90))
    assert inner.shape == (100, 90)
    assert inner[30:57, 20:47].all() and not inner[:29].any() and not inner[:, 49:].any()
    cut = paste(torch.ones(28, 28), torch.tensor([60.0, 80.0, 120.0, 140.0]), (100, 90))
    assert cut[82:, 62:].all() and not cut[:78].any()
    assert not paste(torch.zeros(28, 28), torch.tensor([20.0, 30.0, 47.0, 57.0]), (100, 90)).any()
