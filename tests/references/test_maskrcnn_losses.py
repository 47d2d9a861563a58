"""The losses of instance segmentation on a case that is computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from tests.references.configs import maskrcnn
from train_bench.references.maskrcnn.boxes import BOX_WEIGHTS, grid_anchors, iou
from train_bench.references.maskrcnn.detector import Detector
from train_bench.references.maskrcnn.targets import Objects

SIDE = 64
OBJECT = [8.0, 8.0, 23.0, 23.0]
"""First and last pixels: 16 x 16."""


@pytest.fixture(scope="module")
def detector() -> Detector:
    """The mini network, whose heads answer with their biases, whatever they see."""
    torch.manual_seed(0)
    found = Detector(maskrcnn("maskrcnn_mini"))
    for layer in (found.network.box.cls, found.network.box.bbox, found.network.mask.fcn_logits):
        torch.nn.init.zeros_(layer.weight)
    return found


def one_object() -> Objects:
    masks = torch.zeros(1, SIDE, SIDE, dtype=torch.uint8)
    masks[0, 8:16, 8:24] = 1  # the upper half of its box
    return Objects(boxes=torch.tensor([OBJECT]), labels=torch.tensor([2]), masks=masks, seed=0)


def smooth_l1(difference: float, beta: float) -> float:
    return 0.5 * difference**2 / beta if abs(difference) < beta else abs(difference) - 0.5 * beta


@torch.no_grad()
def test_the_losses_of_the_proposals(detector: Detector) -> None:
    """Anchors: the object itself; one that covers half of it (ignored); background; one across the border."""
    anchors = torch.tensor([OBJECT, [8.0, 8.0, 23.0, 15.0], [40.0, 40.0, 55.0, 55.0], [-1.0, 0.0, 9.0, 9.0]])
    logits = torch.tensor([[2.0, 7.0, 1.0, 9.0]])
    codes = torch.tensor([[[0.05, -0.5, 0.0, 0.2], *[[9.0] * 4] * 3]])
    found = detector._proposal_losses(
        logits, codes, anchors, [(SIDE, SIDE)], [one_object()], [torch.Generator()]
    )
    cross_entropy = math.log1p(math.exp(-2.0)) + math.log1p(math.exp(1.0))
    regression = sum(smooth_l1(code, 1 / 9) for code in (0.05, 0.5, 0.0, 0.2))
    assert float(found["objectness"]) == pytest.approx(cross_entropy / 2)
    assert float(found["rpn_box"]) == pytest.approx(regression / 2)


@torch.no_grad()
def test_an_object_whose_best_anchor_reaches_over_the_border_makes_no_worse_one_positive(
    detector: Detector,
) -> None:
    """IoU with the object at the border: 100/110 (ignored, as it reaches over), 100/256 (the best of those
    inside, between the thresholds), 0 (background). Matching only those inside would make the second positive:
    (log(1 + e^-2) + log(1 + e)) / 2 = 0.7201, and codes of a box that no anchor is responsible for."""
    anchors = torch.tensor([[-1.0, 0.0, 9.0, 9.0], [0.0, 0.0, 15.0, 15.0], [40.0, 40.0, 55.0, 55.0]])
    truth = Objects(
        boxes=torch.tensor([[0.0, 0.0, 9.0, 9.0]]),
        labels=torch.tensor([2]),
        masks=torch.ones(1, SIDE, SIDE, dtype=torch.uint8),
        seed=0,
    )
    found = detector._proposal_losses(
        torch.tensor([[7.0, 2.0, 1.0]]),
        torch.full((1, 3, 4), 9.0),
        anchors,
        [(SIDE, SIDE)],
        [truth],
        [torch.Generator()],
    )
    assert float(found["objectness"]) == pytest.approx(math.log1p(math.e))
    assert float(found["rpn_box"]) == 0.0


def slow_matches(truth: torch.Tensor, anchors: torch.Tensor) -> list[int]:
    """Object, background (-1) or no loss (-2) of each anchor, one after the other in the reference's order: IoU
    of all, thresholds, the best anchors of each object, and last those that reach over the border."""
    overlap = [[float(iou(box[None], anchor[None])) for anchor in anchors] for box in truth]
    found = []
    for number, anchor in enumerate(anchors.tolist()):
        column = [row[number] for row in overlap]
        best = max(column)
        match = column.index(best) if best >= 0.7 else -1 if best < 0.3 else -2
        if any(row[number] == max(row) for row in overlap):
            match = column.index(best)
        if anchor[0] < 0 or anchor[1] < 0 or anchor[2] >= SIDE or anchor[3] >= SIDE:
            match = -2
        found.append(match)
    return found


@torch.no_grad()
def test_the_objectness_of_random_scenes_is_that_of_anchors_matched_one_by_one(detector: Detector) -> None:
    anchors = torch.cat([grid_anchors(size, 8, 8, 8) for size in (16, 32)])
    detector.detection.anchors_sampled = 10_000
    for seed in range(5):
        torch.manual_seed(seed)
        corner = torch.randint(0, 40, (3, 2)).float()
        boxes = torch.cat([corner, (corner + torch.randint(5, 30, (3, 2))).clamp(max=SIDE - 1)], dim=1)
        masks = torch.ones(3, SIDE, SIDE, dtype=torch.uint8)
        truth = Objects(boxes=boxes, labels=torch.tensor([1, 2, 3]), masks=masks, seed=0)
        logits = torch.randn(1, len(anchors))
        found = detector._proposal_losses(
            logits, torch.zeros(1, len(anchors), 4), anchors, [(SIDE, SIDE)], [truth], [torch.Generator()]
        )
        matches = slow_matches(boxes, anchors)
        terms = [
            math.log1p(math.exp(-logit if match >= 0 else logit))
            for logit, match in zip(logits[0].tolist(), matches, strict=True)
            if match != -2
        ]
        assert float(found["objectness"]) == pytest.approx(sum(terms) / len(terms), rel=1e-4)


@torch.no_grad()
def test_the_losses_of_the_regions(detector: Detector) -> None:
    """Two proposals, of which one is the object shifted by two pixels, and the object itself, which joins."""
    scores, codes, mask = [0.0, 0.5, 2.0, -1.0], [0.3, 0.0, -0.1, 0.0], 1.5
    detector.network.box.cls.bias.copy_(torch.tensor(scores))
    detector.network.box.bbox.bias.zero_().view(-1, 4)[2] = torch.tensor(codes)
    detector.network.mask.fcn_logits.bias.zero_()[2] = mask
    levels = [torch.zeros(1, 16, SIDE // stride, SIDE // stride) for stride in (4, 8, 16)]
    proposed = torch.tensor([[10.0, 8.0, 25.0, 23.0], [40.0, 40.0, 55.0, 55.0]])
    detector.detection.rois_sampled = 8  # two of them may be objects
    found = detector._region_losses(levels, [proposed], [one_object()], [torch.Generator()])
    log_sum = math.log(sum(math.exp(score) for score in scores))
    assert float(found["class"]) == pytest.approx((2 * (log_sum - 2.0) + log_sum) / 3)
    back = BOX_WEIGHTS[0] * -2 / 16
    regression = sum(smooth_l1(code, 1.0) for code in (0.3 - back, 0.0, 0.1, 0.0, 0.3, 0.0, 0.1, 0.0))
    assert float(found["box"]) == pytest.approx(regression / 3, rel=1e-5)
    inside, outside = math.log1p(math.exp(-mask)), math.log1p(math.exp(mask))
    shifted = 14 / 16 * 28  # columns of the shifted box's mask that the object reaches
    columns = sum(column + 0.5 < shifted for column in range(28))
    ones = 14 * 28 + 14 * columns
    expected = (ones * inside + (2 * 28 * 28 - ones) * outside) / (2 * 28 * 28)
    assert float(found["mask"]) == pytest.approx(expected, abs=0.01)
