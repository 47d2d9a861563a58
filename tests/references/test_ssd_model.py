"""The network, the prior boxes and the loss of the single-shot detector, held to published figures."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from tests.references.slow_boxes import encode
from train_bench.references.ssd.config import Model
from train_bench.references.ssd.loss import multibox_loss
from train_bench.references.ssd.model import SSD, tensor_names
from train_bench.references.ssd.priors import decode, match, priors

FULL = Model(
    image_size=300,
    stem_width=64,
    stem_kernel=7,
    stem_stride=2,
    stem_pool=True,
    widths=[64, 128, 256],
    blocks=[3, 4, 6],
    strides=[1, 2, 1],
    extra=[[256, 512, 2, 1], [256, 512, 2, 1], [128, 256, 2, 1], [128, 256, 1, 0], [128, 256, 1, 0]],
    num_classes=80,
    feature_sizes=[38, 19, 10, 5, 3, 1],
    feature_steps=[8, 16, 32, 64, 100, 300],
    scales=[21, 45, 99, 153, 207, 261, 315],
    aspect_ratios=[[2], [2, 3], [2, 3], [2, 3], [2], [2]],
)


@pytest.fixture(scope="module")
def full() -> SSD:
    torch.manual_seed(0)
    return SSD(FULL)


def test_the_full_model_has_the_parameters_of_the_reference(full):
    assert sum(weight.numel() for weight in full.parameters()) == 19_972_534
    assert sum(weight.numel() for weight in full.backbone.parameters()) == 8_170_304


def test_the_backbone_has_the_names_of_resnet_34(full):
    from torchvision.models import resnet34

    theirs = {name: weight.shape for name, weight in resnet34().state_dict().items()}
    ours = {name: weight.shape for name, weight in full.backbone.state_dict().items()}
    assert ours == {name: shape for name, shape in theirs.items() if not name.startswith(("layer4", "fc"))}


def test_the_log_names_119_tensors(full):
    names = tensor_names(full)
    assert len(set(names)) == len(names) == 119
    assert names[3] == "ssd0_resnetmlperf0_stage1_conv0_weight"
    assert "ssd0_resnetmlperf0_stage3_batchnorm12_beta" in names
    assert names[-1] == "ssd0_convpredictor5_conv0_bias"


@pytest.mark.full
def test_a_full_step_lowers_the_loss_of_its_batch(full):
    torch.manual_seed(1)
    images = torch.randn(1, 3, 300, 300)
    prior = priors(FULL)
    targets, classes = match(torch.tensor([[0.2, 0.3, 0.6, 0.8]]), torch.tensor([17]), [1], prior)
    optimizer = torch.optim.SGD(full.parameters(), lr=1e-3)
    losses = []
    for _ in range(2):
        offsets, logits = full(images)
        assert offsets.shape == (1, 4, 8732)
        assert logits.shape == (1, 81, 8732)
        loss = multibox_loss(offsets, logits, targets, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]


def test_priors_follow_the_order_and_sizes_of_the_reference():
    boxes = priors(FULL)
    assert boxes.shape == (8732, 4)
    first, second = 0.5 * 8 / 300, 1.5 * 8 / 300
    assert boxes[0].tolist() == pytest.approx([first, first, 0.07, 0.07])
    assert boxes[1].tolist() == pytest.approx([second, first, 0.07, 0.07])
    between = math.sqrt(21 * 45) / 300
    assert boxes[38 * 38].tolist() == pytest.approx([first, first, between, between])
    wide = boxes[2 * 38 * 38].tolist()
    assert wide == pytest.approx([first, first, 0.07 * math.sqrt(2), 0.07 / math.sqrt(2)])
    assert boxes[-4:, :2].tolist() == [[0.5, 0.5]] * 4
    assert boxes.min() >= 0
    assert boxes.max() <= 1


def test_offsets_are_turned_back_into_boxes():
    prior = priors(FULL)[::500]
    boxes = torch.tensor([[0.1, 0.2, 0.4, 0.9]]).expand(len(prior), 4)
    assert torch.allclose(decode(encode(boxes, prior), prior), boxes, atol=1e-5)
    worked = torch.tensor([5.0, 0.0, math.log(2) / 0.2, 0.0])
    corners = decode(worked, torch.tensor([0.4, 0.5, 0.2, 0.4]))
    assert corners.tolist() == pytest.approx([0.3, 0.3, 0.7, 0.7], abs=1e-5)


def test_every_object_claims_a_prior_and_the_later_one_wins():
    prior = torch.tensor([[0.5, 0.5, 0.2, 0.2], [0.5, 0.5, 0.9, 0.9], [0.1, 0.1, 0.1, 0.1]])
    small = [0.45, 0.45, 0.5, 0.5]
    _, classes = match(torch.tensor([small]), torch.tensor([3]), [1], prior)
    assert classes.tolist() == [[3, 0, 0]]
    _, classes = match(torch.tensor([small, small]), torch.tensor([3, 5]), [2], prior)
    assert classes.tolist() == [[5, 0, 0]]
    _, classes = match(torch.tensor([[0.1, 0.1, 0.9, 0.9]]), torch.tensor([7]), [1], prior)
    assert classes.tolist() == [[0, 7, 0]]


def test_the_loss_is_that_of_a_small_case_by_hand():
    logits = torch.tensor([[[0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [1.0, -1.0, 2.0, 0.5, 3.0, -2.0]]])
    classes = torch.tensor([[1, 0, 0, 0, 0, 0]])
    offsets = torch.zeros(1, 4, 6)
    targets = torch.zeros(1, 6, 4)
    targets[0, 0] = torch.tensor([0.5, 2.0, 0.0, -3.0])
    place = 0.125 + 1.5 + 2.5
    kind = math.log(1 + math.exp(-1)) + sum(math.log(1 + math.exp(score)) for score in (3.0, 2.0, 0.5))
    assert float(multibox_loss(offsets, logits, targets, classes)) == pytest.approx(place + kind, rel=1e-6)


def test_an_image_without_positives_adds_nothing_but_counts_in_the_mean():
    torch.manual_seed(2)
    logits, offsets = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    targets, classes = torch.zeros(2, 5, 4), torch.tensor([[0, 2, 0, 0, 0], [0, 0, 0, 0, 0]])
    alone = multibox_loss(offsets[:1], logits[:1], targets[:1], classes[:1])
    assert float(multibox_loss(offsets, logits, targets, classes)) == pytest.approx(float(alone) / 2)
    assert float(alone) > float(functional.smooth_l1_loss(offsets[0, :, 1], torch.zeros(4)))
