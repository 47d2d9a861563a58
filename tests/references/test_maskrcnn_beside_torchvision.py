"""The parts of Mask R-CNN beside torchvision's `models.detection`, which nobody here has written."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torchvision.models.detection._utils import BoxCoder, Matcher
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.rpn import RPNHead, concat_box_prediction_layers
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.ops import FrozenBatchNorm2d, box_iou

from tests.references.torchvision_parts import (
    ROUNDING,
    apart,
    assert_agree,
    gradients_apart,
    with_the_weights_of,
)
from train_bench.references.maskrcnn import boxes, targets
from train_bench.references.maskrcnn.config import Model
from train_bench.references.maskrcnn.model import (
    Backbone,
    BoxHead,
    FrozenNorm,
    MaskHead,
    ProposalHead,
    Pyramid,
)

SMALL = Model(blocks=[1, 1, 1, 1], frozen_stages=0, fpn_channels=16)
"""The widths of the full benchmark with one block in each stage, all of it trained but for the norms."""


@pytest.mark.parametrize("as_detectron", [True, False])
def test_backbone_and_pyramid_are_torchvisions_but_for_the_place_of_strides_and_an_epsilon(
    as_detectron: bool,
) -> None:
    torch.manual_seed(0)
    ours, pyramid = Backbone(SMALL).double(), Pyramid([256, 512, 1024, 2048], 16).double()
    for module in ours.modules():
        if isinstance(module, FrozenNorm):
            module.running_var.uniform_(0.5, 2.0)
            module.running_mean.normal_(0.0, 0.1)
    body = ResNet(Bottleneck, [1, 1, 1, 1], norm_layer=FrozenBatchNorm2d)
    stages = {f"layer{number + 1}": str(number) for number in range(4)}
    theirs = BackboneWithFPN(body, stages, [256, 512, 1024, 2048], 16).double()
    with_the_weights_of(theirs, ours, pyramid)
    for module in theirs.modules():
        if as_detectron and isinstance(module, Bottleneck):
            module.conv1.stride, module.conv2.stride = module.conv2.stride, (1, 1)
        if as_detectron and isinstance(module, FrozenBatchNorm2d):
            module.eps = 0.0
    images = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    found, expected = pyramid(ours(images)), list(theirs(images).values())
    furthest = max(apart(one, other) for one, other in zip(found, expected, strict=True))
    if not as_detectron:
        assert furthest > 0.01
        return
    assert furthest < ROUNDING
    weights = [*ours.parameters(), *pyramid.parameters()]
    assert gradients_apart(found, expected, weights, list(theirs.parameters())) < ROUNDING


def test_the_proposal_head_is_torchvisions() -> None:
    torch.manual_seed(0)
    ours, theirs = ProposalHead(8).double(), RPNHead(8, 3).double()
    with_the_weights_of(theirs, ours)
    levels = [torch.randn(2, 8, side, side, dtype=torch.float64) for side in (8, 4)]
    found = [torch.cat(parts, dim=1) for parts in ours(levels)]
    logits, codes = concat_box_prediction_layers(*theirs(levels))
    expected = [logits.reshape(2, -1), codes.reshape(2, -1, 4)]
    assert_agree(found, expected, ours, theirs)


def test_the_box_head_is_torchvisions() -> None:
    torch.manual_seed(0)
    ours = BoxHead(4, 32, 5).double()
    first, last = TwoMLPHead(4 * 49, 32).double(), FastRCNNPredictor(32, 5).double()
    both = torch.nn.Sequential(first, last)
    with_the_weights_of(both, ours)
    pooled = torch.randn(6, 4, 7, 7, dtype=torch.float64)
    logits, codes = both(pooled)
    found, expected = ours(pooled), [logits, codes.unflatten(1, (-1, 4))]
    assert_agree(found, expected, ours, both)


def test_the_mask_head_is_torchvisions() -> None:
    torch.manual_seed(0)
    ours = MaskHead(4, 8, 5).double()
    theirs = torch.nn.Sequential(MaskRCNNHeads(4, [8] * 4, 1), MaskRCNNPredictor(8, 8, 5)).double()
    with_the_weights_of(theirs, ours)
    pooled = torch.randn(3, 4, 14, 14, dtype=torch.float64)
    assert_agree([ours(pooled)], [theirs(pooled)], ours, theirs)


def drawn(count: int, seed: int) -> Tensor:
    """First and last pixels."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.randint(0, 60, (count, 2), generator=generator)
    return torch.cat([corner, corner + torch.randint(5, 40, (count, 2), generator=generator)], dim=1).float()


@pytest.mark.parametrize("weights", [boxes.RPN_WEIGHTS, boxes.BOX_WEIGHTS])
def test_codes_are_torchvisions_of_the_edges(weights: tuple[float, ...]) -> None:
    coder, one, other = BoxCoder(weights), drawn(40, 0), drawn(40, 1)
    ours = boxes.encode(one, other, weights)
    assert apart(ours, coder.encode_single(boxes.as_edges(one), boxes.as_edges(other))) < 1e-5
    assert apart(ours, coder.encode_single(one, other)) > 0.01
    torch.manual_seed(0)
    codes = 8 * torch.randn(40, 4)  # some grow by more than is allowed
    theirs = coder.decode_single(codes, boxes.as_edges(other))
    assert apart(boxes.as_edges(boxes.decode(codes, other, weights)), theirs) < 1e-5


@pytest.mark.parametrize(("above", "below", "claim"), [(0.7, 0.3, True), (0.5, 0.5, False)])
def test_matches_are_torchvisions_of_the_edges(above: float, below: float, claim: bool) -> None:
    truth, proposed = drawn(6, 2), torch.cat([drawn(300, 3), drawn(6, 2) + 1])
    ours = targets.match(truth, proposed, above=above, below=below, claim=claim)
    matcher = Matcher(above, below, allow_low_quality_matches=claim)
    assert ours.tolist() == matcher(box_iou(boxes.as_edges(truth), boxes.as_edges(proposed))).tolist()
    assert (ours >= 0).sum() >= 6


@pytest.mark.parametrize(("size", "stride", "share"), [(32, 4, 2 / 22), (512, 64, 6 / 362)])
def test_anchors_are_torchvisions_half_a_stride_further_with_other_rounding(
    size: int, stride: int, share: float
) -> None:
    generator = AnchorGenerator(((size,),), (boxes.RATIOS,))
    theirs = generator.grid_anchors([[3, 5]], [[torch.tensor(stride)] * 2])[0]
    ours = boxes.as_edges(boxes.grid_anchors(size, stride, 3, 5))
    centres = [(corners[:, :2] + corners[:, 2:]) / 2 for corners in (ours, theirs)]
    assert torch.equal(centres[0] - centres[1], torch.full_like(centres[0], stride / 2))
    sides = [corners[:, 2:] - corners[:, :2] for corners in (ours, theirs)]
    assert float((sides[0] / sides[1] - 1).abs().max()) == pytest.approx(share, rel=1e-4)
