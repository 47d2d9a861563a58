"""The parts of the single-shot detector beside torchvision's `models.detection.ssd`, which nobody here has written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import resnet34
from torchvision.models.detection import _utils as detection
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.ssd import SSD as Theirs
from torchvision.models.detection.ssd import SSDHead
from torchvision.ops import box_convert, box_iou

from tests.references.configs import ssd
from tests.references.torchvision_parts import ROUNDING, apart, assert_agree, with_the_weights_of
from train_bench.references.ssd.config import Model
from train_bench.references.ssd.loss import multibox_loss
from train_bench.references.ssd.model import SSD, Backbone
from train_bench.references.ssd.priors import decode, match, priors

CODER = detection.BoxCoder(weights=(10.0, 10.0, 5.0, 5.0))


def by_kind(found: Tensor, kinds: int) -> Tensor:
    """(samples, places * kinds, columns), place by place -> (samples, columns, kinds * places), kind by kind."""
    return found.unflatten(1, (-1, kinds)).permute(0, 3, 2, 1).flatten(2)


def by_box(conv: nn.Conv2d, columns: int) -> list[Tensor]:
    """Weight and bias whose channels go coordinate by coordinate -> box by box."""
    return [
        tensor.unflatten(0, (columns, -1)).transpose(0, 1).flatten(0, 1)
        for tensor in (conv.weight, conv.bias)
    ]


def kinds_of(shape: Model) -> list[int]:
    return [2 + 2 * len(ratios) for ratios in shape.aspect_ratios]


@pytest.fixture(scope="module")
def mini() -> Model:
    return ssd("ssd_mini").model


def test_the_backbone_is_torchvisions_resnet_34_with_stride_1_in_its_third_stage() -> None:
    torch.manual_seed(0)
    ours = Backbone(ssd("ssd").model).double().train()
    whole = resnet34().double()
    assert whole.layer3[0].conv1.stride == whole.layer3[0].downsample[0].stride == (2, 2)
    whole.layer3[0].conv1.stride = whole.layer3[0].downsample[0].stride = (1, 1)
    kept = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3")
    theirs = nn.Sequential(*(getattr(whole, name) for name in kept)).train()
    with_the_weights_of(theirs, ours)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert_agree([ours(images)], [theirs(images)], ours, theirs)
    buffers = zip(ours.buffers(), theirs.buffers(), strict=True)
    assert max(apart(one, other) for one, other in buffers) < ROUNDING


def test_the_heads_are_torchvisions_with_channels_in_another_order(mini: Model) -> None:
    torch.manual_seed(0)
    ours, kinds = SSD(mini).double(), kinds_of(mini)
    inputs = [conv.in_channels for conv in ours.offsets]
    theirs = SSDHead(inputs, kinds, mini.num_classes + 1).double()
    images = torch.randn(2, 3, mini.image_size, mini.image_size, dtype=torch.float64)
    maps = [ours.backbone(images)]
    for layer in ours.extra:
        maps.append(layer(maps[-1]))
    for mine, head, columns in (
        (ours.offsets, theirs.regression_head, 4),
        (ours.scores, theirs.classification_head, mini.num_classes + 1),
    ):
        for conv, other in zip(mine, head.module_list, strict=True):
            other.load_state_dict(dict(zip(("weight", "bias"), by_box(conv, columns), strict=True)))
    found = theirs(maps)
    counts = [kind * level.shape[2] * level.shape[3] for kind, level in zip(kinds, maps, strict=True)]
    for mine, name in zip(ours(images), ("bbox_regression", "cls_logits"), strict=True):
        parts = zip(found[name].split(counts, dim=1), kinds, strict=True)
        assert apart(mine, torch.cat([by_kind(part, kind) for part, kind in parts], dim=2)) < ROUNDING


@pytest.mark.parametrize(("scale", "beyond"), [("ssd", 114), ("ssd_mini", 0)])
def test_prior_boxes_are_torchvisions_but_for_centres_beyond_the_image(scale: str, beyond: int) -> None:
    shape = ssd(scale).model
    generator = DefaultBoxGenerator(
        shape.aspect_ratios,
        scales=[size / shape.image_size for size in shape.scales],
        steps=shape.feature_steps,
    )
    sizes = shape.feature_sizes
    theirs = generator._grid_default_boxes([[size, size] for size in sizes], [shape.image_size] * 2)
    counts = [kinds * size * size for kinds, size in zip(kinds_of(shape), sizes, strict=True)]
    parts = zip(theirs.split(counts), kinds_of(shape), strict=True)
    expected = torch.cat([by_kind(part[None], kinds)[0].T for part, kinds in parts])
    assert apart(priors(shape), expected.clamp(0, 1)) < ROUNDING
    assert int((expected > 1).any(dim=1).sum()) == beyond


def test_decoded_boxes_are_those_of_torchvisions_coder() -> None:
    prior = drawn_boxes(50, seed=0)
    centred = box_convert(prior, "xyxy", "cxcywh")
    torch.manual_seed(0)
    offsets = torch.randn(50, 4)
    assert apart(decode(offsets, centred), CODER.decode_single(offsets, prior)) < 1e-5


def test_torchvisions_coder_lets_no_box_grow_by_more_than_62_and_a_half_and_the_reference_does() -> None:
    prior, large = drawn_boxes(1, seed=0), torch.tensor([[0.0, 0.0, 25.0, 25.0]])
    centred = box_convert(prior, "xyxy", "cxcywh")
    grown = [
        float((boxes[0, 2] - boxes[0, 0]) / centred[0, 2])
        for boxes in (decode(large, centred), CODER.decode_single(large, prior))
    ]
    assert grown == pytest.approx([torch.tensor(5.0).exp().item(), 62.5], rel=1e-4)


def drawn_boxes(count: int, *, seed: int) -> Tensor:
    """Corners within the unit square."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * 0.6
    return torch.cat([corner, corner + 0.1 + 0.3 * torch.rand(count, 2, generator=generator)], dim=1)


def theirs_of(objects: Tensor, labels: Tensor, offsets: Tensor, logits: Tensor, prior: Tensor) -> Any:
    """torchvision's matches and losses of one image or, of tensors with a dimension more, of several."""
    matched = [detection.SSDMatcher(0.5)(box_iou(boxes, prior)) for boxes in objects]
    asked = SimpleNamespace(box_coder=CODER, neg_to_pos_ratio=3)
    targets = [{"boxes": boxes, "labels": labels} for boxes, labels in zip(objects, labels, strict=True)]
    outputs = {"bbox_regression": offsets.mT.contiguous(), "cls_logits": logits.mT.contiguous()}
    losses = Theirs.compute_loss(asked, targets, outputs, [prior] * len(objects), matched)
    return matched, sum(losses.values())


def test_matches_and_the_loss_of_an_image_are_torchvisions_and_a_batch_is_averaged_otherwise(
    mini: Model,
) -> None:
    centred = priors(mini)
    prior = box_convert(centred, "cxcywh", "xyxy")
    torch.manual_seed(0)
    classes = mini.num_classes + 1
    offsets, logits = torch.randn(2, 4, len(prior)), torch.randn(2, classes, len(prior))
    objects = torch.stack([drawn_boxes(4, seed=2), drawn_boxes(4, seed=3)])
    objects[1, :, 2:] = objects[1, :, :2] + 0.05  # so small that fewer prior boxes are matched
    labels = torch.tensor([[1, 2, 1, 3], [2, 1, 1, 2]])
    targets, wanted = match(objects.flatten(0, 1), labels.flatten(), [4, 4], centred)
    alone = []
    for image in range(2):
        one = slice(image, image + 1)
        (matched,), loss = theirs_of(objects[one], labels[one], offsets[one], logits[one], prior)
        assert wanted[image].tolist() == torch.where(matched < 0, 0, labels[image][matched]).tolist()
        ours = multibox_loss(offsets[one], logits[one], targets[one], wanted[one])
        assert float(ours) == pytest.approx(float(loss), rel=1e-5)
        alone.append(float(ours))
    ours = float(multibox_loss(offsets, logits, targets, wanted))
    _, theirs = theirs_of(objects, labels, offsets, logits, prior)
    counts = (wanted > 0).sum(dim=1).tolist()
    assert counts[0] != counts[1]
    assert ours == pytest.approx(sum(alone) / 2, rel=1e-5)
    weighed = sum(loss * count for loss, count in zip(alone, counts, strict=True)) / sum(counts)
    assert float(theirs) == pytest.approx(weighed, rel=1e-5)
