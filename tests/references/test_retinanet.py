"""RetinaNet beside torchvision's, which nobody here has written; its data and its rate by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models import resnext50_32x4d
from torchvision.models.detection import RetinaNet as Theirs
from torchvision.models.detection._utils import BoxCoder
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import sigmoid_focal_loss
from torchvision.ops.feature_pyramid_network import LastLevelP6P7
from torchvision.ops.misc import FrozenBatchNorm2d

from tests.references.configs import retinanet, ssd
from tests.references.one_rank import OneRank
from tests.references.tasks import mark
from tests.references.torchvision_parts import ROUNDING, apart, assert_agree, with_the_weights_of
from train_bench.errors import RequestError
from train_bench.references.parts import matching
from train_bench.references.parts.generators import Generators
from train_bench.references.retinanet import data
from train_bench.references.retinanet.anchors import anchors, decode, encode, match
from train_bench.references.retinanet.config import Config, Model
from train_bench.references.retinanet.detections import detect
from train_bench.references.retinanet.loss import focal_loss
from train_bench.references.retinanet.model import RetinaNet
from train_bench.references.retinanet.recipe import optimizer_of, schedule_of
from train_bench.references.retinanet.task import Task
from train_bench.rules import ruleset

TRAINED, FROZEN = 36_849_004, 211_648
SIDE = 128


def theirs(classes: int) -> Theirs:
    """torchvision's detector on the backbone and with the settings of the reference."""
    backbone = resnext50_32x4d(norm_layer=FrozenBatchNorm2d)
    stages = {f"layer{number}": str(number) for number in (2, 3, 4)}
    pyramid = BackboneWithFPN(backbone, stages, [512, 1024, 2048], 256, LastLevelP6P7(256, 256))
    sizes = tuple((x, int(x * 2 ** (1 / 3)), int(x * 2 ** (2 / 3))) for x in (32, 64, 128, 256, 512))
    return Theirs(
        pyramid,
        classes,
        anchor_generator=AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * 5),
        detections_per_img=300,
    )


def ours_with_the_weights_of(other: nn.Module) -> RetinaNet:
    """Our network in double precision, for 128 pixels and seven classes; `other` takes its weights."""
    torch.manual_seed(0)
    ours = RetinaNet(Model(image_size=SIDE, num_classes=7, frozen_stages=0)).double()
    for layer in ours.modules():
        if isinstance(layer, FrozenBatchNorm2d):
            layer.weight.uniform_(0.2, 0.6)
    for head in (ours.scores, ours.codes):  # else all anchors say nearly the same
        torch.nn.init.normal_(head.out.weight, std=0.1)
    with_the_weights_of(other, ours)
    return ours


@pytest.fixture(scope="module")
def both() -> tuple[RetinaNet, Theirs]:
    """Both with the same weights."""
    other = theirs(7).double()
    return ours_with_the_weights_of(other), other


def test_the_full_network_has_the_parameters_of_torchvisions() -> None:
    with torch.device("meta"):
        ours, other = RetinaNet(Model()), theirs(264)
    shapes = [[tuple(weight.shape) for weight in model.parameters()] for model in (ours, other)]
    assert shapes[0] == shapes[1]
    counts = [sum(w.numel() for w in ours.parameters() if w.requires_grad is kind) for kind in (True, False)]
    assert counts == [TRAINED, FROZEN]


def test_anchors_of_the_full_scale_are_torchvisions() -> None:
    maps = [torch.zeros(1, 1, side, side) for side in (100, 50, 25, 13, 7)]
    images = ImageList(torch.zeros(1, 3, 800, 800), [(800, 800)])
    (expected,) = theirs(1).anchor_generator(images, maps)
    assert torch.equal(torch.cat(anchors(Model())), expected) and len(expected) == 120_087


def test_box_codes_are_torchvisions() -> None:
    torch.manual_seed(0)
    prior, wanted = (drawn_boxes(30, seed) for seed in (0, 1))
    coder = BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
    assert apart(encode(wanted, prior), coder.encode_single(wanted, prior)) < 1e-5
    codes = 3 * torch.randn(30, 4)  # some grow by more than is allowed
    assert apart(decode(codes, prior), coder.decode_single(codes, prior)) < 1e-5


def drawn_boxes(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * SIDE * 0.7
    return torch.cat([corner, corner + 4 + SIDE * 0.25 * torch.rand(count, 2, generator=generator)], dim=1)


def assert_same_outputs_losses_and_gradients(ours: RetinaNet, other: Any) -> None:
    torch.manual_seed(1)
    images = torch.randn(2, 3, SIDE, SIDE, dtype=torch.float64)
    codes, logits = ours(images)
    found = other.head(list(other.backbone(images).values()))
    assert apart(codes, found["bbox_regression"]) < ROUNDING
    assert apart(logits, found["cls_logits"]) < ROUNDING
    boxes = [drawn_boxes(5, 2).double(), torch.zeros(0, 4, dtype=torch.float64)]
    boxes[0][4] = torch.tensor([60.0, 60.0, 63.0, 62.0])  # so small that no anchor overlaps half of it
    labels = [torch.tensor([1, 7, 3, 3, 2]), torch.zeros(0, dtype=torch.int64)]
    prior = torch.cat(anchors(Model(image_size=SIDE))).double()
    targets = [{"boxes": b, "labels": n - 1} for b, n in zip(boxes, labels, strict=True)]
    expected = other.compute_loss(targets, found, [prior, prior])
    mine = focal_loss(codes, logits, boxes, labels, prior)
    assert_agree([mine], [sum(expected.values())], ours, other)


@pytest.mark.full
def test_answers_losses_and_gradients_are_torchvisions(both: tuple[RetinaNet, Theirs]) -> None:
    assert_same_outputs_losses_and_gradients(*both)


def one_hot_loss(
    codes: Tensor, logits: Tensor, boxes: list[Tensor], labels: list[Tensor], prior: Tensor
) -> Tensor:
    """The loss with a number for each class of each anchor that says whether it is there."""
    total = logits.new_zeros(())
    for code, logit, box, label in zip(codes, logits, boxes, labels, strict=True):
        matches = match(box, prior) if len(box) else torch.full((len(prior),), matching.BACKGROUND)
        found, wanted = matches >= 0, torch.zeros_like(logit)
        wanted[found, label[matches[found]] - 1] = 1.0
        focal = sigmoid_focal_loss(logit, wanted, alpha=0.25, gamma=2.0)[matches != matching.BETWEEN].sum()
        moved = encode(box[matches[found]], prior[found])
        distance = functional.l1_loss(code[found], moved, reduction="sum")
        total = total + (focal + distance) / max(int(found.sum()), 1)
    return total / len(boxes)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_loss_and_gradients_are_those_of_one_hot_targets(scale: float) -> None:
    """Of logits far from 0, too."""
    torch.manual_seed(4)
    prior = torch.cat(anchors(Model(image_size=SIDE))).double()
    codes = torch.randn(3, len(prior), 4, dtype=torch.float64, requires_grad=True)
    logits = (scale * torch.randn(3, len(prior), 6, dtype=torch.float64)).requires_grad_()
    boxes = [drawn_boxes(5, 2).double(), torch.zeros(0, 4, dtype=torch.float64), drawn_boxes(2, 3).double()]
    labels = [torch.tensor([1, 6, 3, 3, 2]), torch.zeros(0, dtype=torch.int64), torch.tensor([4, 6])]
    found = []
    for measure in (focal_loss, one_hot_loss):
        loss = measure(codes, logits, boxes, labels, prior)
        found.append([loss, *torch.autograd.grad(loss, [codes, logits])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_detections_are_torchvisions(both: tuple[RetinaNet, Theirs]) -> None:
    ours, other = both
    torch.manual_seed(2)
    levels = anchors(Model(image_size=SIDE))
    counts = [len(level) for level in levels]
    with torch.no_grad():
        codes, logits = (each.float() for each in ours(torch.randn(1, 3, SIDE, SIDE, dtype=torch.float64)))
    logits = logits - logits.mean() + torch.randn_like(logits) - 2
    split = {"bbox_regression": list(codes.split(counts, 1)), "cls_logits": list(logits.split(counts, 1))}
    (expected,) = other.postprocess_detections(split, [levels], [(SIDE, SIDE)])
    corners, scores, labels = detect(codes[0], logits[0], levels, SIDE)
    assert len(scores) == 300 and bool((logits[0].sigmoid() > 0.05).sum() > 1000)
    assert torch.equal(labels - 1, expected["labels"])
    assert apart(scores, expected["scores"]) < ROUNDING
    assert apart(SIDE * corners, expected["boxes"]) < 1e-5


def test_the_rate_rises_for_an_epoch_from_a_thousandth_of_itself() -> None:
    rates = schedule_of(retinanet("retinanet_bs512"))
    epoch = 1_170_301 // 512
    assert [rates(step) for step in (0, epoch // 2, epoch, 9 * epoch)] == pytest.approx(
        [1e-7, 0.5 * 1.001e-4, 1e-4, 1e-4], rel=1e-3
    )
    without = schedule_of(retinanet("retinanet_bs512", "hyperparameters.opt_learning_rate_warmup_epochs=0"))
    assert without(0) == 1e-4


def test_adam_moves_what_is_trained_and_nothing_else() -> None:
    config = retinanet("retinanet")
    with torch.device("meta"):
        model = RetinaNet(config.model)
        (group,) = optimizer_of(model, config.hyperparameters).param_groups
    assert sum(weight.numel() for weight in group["params"]) == TRAINED
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.999), 1e-8, 0.0)


@pytest.fixture
def openimages(tmp_path: Path) -> Path:
    """A small OpenImages as the reference's script leaves it: JPEG files of several sizes, a small box, a group."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 15), ("validation", 6)):
        (tmp_path / split / "data").mkdir(parents=True)
        (tmp_path / split / "labels").mkdir()
        images, annotations = [], []
        for number in range(1, count + 1):
            height, width = int(rng.integers(60, 120)), int(rng.integers(60, 120))
            pixels = rng.integers(0, 90, (height, width, 3), dtype=np.uint8)
            kind, extent = number % 3, int(rng.integers(20, 50))
            left, top = int(rng.integers(0, width - extent)), int(rng.integers(0, height - extent))
            pixels[top : top + extent, left : left + extent, kind] = 250
            name = f"{number:016x}.jpg"
            Image.fromarray(pixels).save(tmp_path / split / "data" / name, quality=95)
            images.append({"id": number, "file_name": name, "height": height, "width": width})
            side = 0.9 if number == 1 else extent  # of the first image no box is larger than a pixel
            annotations.append(
                {
                    "id": number,
                    "image_id": number,
                    "category_id": kind,
                    "bbox": [left, top, side, side],
                    "area": side * side,
                    "iscrowd": int(number == 2),
                    "IsGroupOf": number == 2,
                }
            )
        annotations.pop()  # of an image without a box
        labels = {
            "images": images,
            "annotations": annotations,
            "categories": [{"id": kind, "name": str(kind)} for kind in range(3)],
        }
        (tmp_path / split / "labels" / data.LABELS).write_text(json.dumps(labels))
    return tmp_path


def small(folder: Path, *overrides: str) -> Config:
    config: Config = retinanet(
        "retinanet",
        *(f"data_dir={folder}", "train_samples=15", "eval_samples=6", "warm_up_steps=0"),
        *("model.image_size=64", "model.widths=[8,12,16,24]", "model.blocks=[1,1,1,1]", "model.groups=2"),
        *("model.width_per_group=32", "model.stem_width=16", "model.fpn_channels=16", "model.num_classes=3"),
        *(
            "model.anchor_size=16",
            "model.head_deviation=0.04",
            f"model.start_weights={folder / 'start.pth'}",
            "data.eval_batch_size=4",
        ),
        *("hyperparameters.global_batch_size=4", "hyperparameters.opt_base_learning_rate=0.003"),
        *overrides,
    )
    return config


@pytest.mark.full
def test_it_trains_on_openimages_from_start_weights_with_frozen_norms(openimages: Path) -> None:
    """JPEG files of several sizes; what is frozen stays, the rest moves; an image without a box is judged."""
    config = small(openimages)
    torch.manual_seed(3)
    start = {**RetinaNet(config.model).backbone.state_dict(), "fc.weight": torch.zeros(2)}
    torch.save(start, openimages / "start.pth")
    data.prepare(config, openimages, None)
    task = Task(config)
    task.build(1, OneRank())
    task.open_data()
    losses = []
    for step in range(1, 51):
        task.train_until(mark(4 * step))
        losses.append(float(task.last_loss))
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    moved = {
        name
        for name, value in task.model.backbone.state_dict().items()
        if not torch.equal(value, start[name])
    }
    frozen = {
        name for name in start if name.startswith(("conv1", "layer1")) or "bn" in name or "sample.1" in name
    }
    assert moved == start.keys() - frozen - {"fc.weight"}
    assert math.isfinite(task.evaluate().metrics["mAP"])
    assert sum(map(len, task.samples_taken().evaluation)) == 6
    task.close()


def test_training_images_are_all_used_with_small_boxes_and_without_any(openimages: Path) -> None:
    """The published reference filters none of OpenImages."""
    with pytest.raises(RequestError, match="has 15 images that can be used; retinanet has 14"):
        data.prepare(small(openimages, "train_samples=14", "model.start_weights=null"), openimages, None)
    config = small(openimages, "model.start_weights=null")
    data.prepare(config, openimages, None)
    train, _ = data.open_splits(config, openimages)
    examples = data.TrainingSet(split=train, data=config.data, side=64, generators=Generators(1))
    assert [len(examples[index, 0][1]) for index in range(15)] == [1] * 14 + [0]
    width, height = (examples[0, 0][1][:, 2:] - examples[0, 0][1][:, :2])[0].tolist()
    assert min(width, height) > 0 and max(width, height) < 1


def test_padding_of_an_evaluation_is_as_large_as_the_first_image_and_is_not_read(openimages: Path) -> None:
    config = small(openimages, "model.start_weights=null")
    data.prepare(config, openimages, None)
    _, val = data.open_splits(config, openimages)
    evaluated = data.EvaluationSet(split=val)
    first, _ = evaluated[0]
    with patch.object(type(val), "pixels", side_effect=AssertionError("read")):
        padding, number = evaluated[6]
    assert (number, padding.shape, padding.dtype) == (6, first.shape, first.dtype)


def test_an_image_without_a_box_is_background_alone(openimages: Path) -> None:
    config = small(openimages, "model.start_weights=null")
    task = Task(config)
    task.build(1, OneRank())
    images, _, _ = task.synthetic(4)
    nothing = [torch.zeros((0, 4))] * 4, [torch.zeros(0, dtype=torch.int64)] * 4
    before = [one.detach().clone() for one in task.model.parameters()]
    task.train_step(iter([(images, *nothing)]))
    assert math.isfinite(float(task.last_loss)) and float(task.last_loss) > 0
    moved = [not torch.equal(old, new) for old, new in zip(before, task.model.parameters(), strict=True)]
    assert any(moved)


def test_where_openimages_is_expected_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match=r"There is no .*openimages-mlperf.json.* name that folder with data_dir"
    ):
        data.prepare(small(tmp_path, "model.start_weights=null"), tmp_path, None)


def test_images_and_boxes_come_to_one_size_and_are_flipped_together(openimages: Path) -> None:
    examples = []
    for flip in ("0.0", "1.0"):
        config = small(openimages, "model.start_weights=null", f"data.flip={flip}")
        data.prepare(config, openimages, None)
        train, _ = data.open_splits(config, openimages)
        examples.append(
            data.TrainingSet(split=train, data=config.data, side=64, generators=Generators(1))[2, 5]
        )
    (pixels, boxes, labels), (mirrored, others, same) = examples
    assert torch.equal(pixels.flip(2), mirrored) and torch.equal(labels, same)
    assert torch.allclose(boxes[:, [0, 2]], 64 - others[:, [2, 0]], atol=1e-4)
    task = Task(config)
    task.build(1, OneRank())
    _, height, width = pixels.shape
    assert (height, width) != (64, 64)
    found = task.normalize([pixels, mirrored])
    assert found.shape == (2, 3, 64, 64)
    whole = task.normalize([pixels])
    assert torch.equal(found[:1], whole)
    left, top, right, bottom = boxes[0].round().int().tolist()
    inside = whole[0, int(labels[0]) - 1, top + 1 : bottom - 1, left + 1 : right - 1]
    assert float(inside.mean()) > 1.0 + float(whole[0, int(labels[0]) - 1].median())


def test_the_mini_scale_has_the_scenes_and_at_least_the_target_of_ssds() -> None:
    """What fitted detectors without a network reach on these scenes is measured there."""
    ours, other = retinanet("retinanet_mini"), ssd("ssd_mini")
    assert ours.data.sha256 == other.data.sha256 is not None
    rules = ruleset.load("mini-1.0")
    targets = [rules.benchmark(f"{name}_mini").target.thresholds[0].value for name in ("retinanet", "ssd")]
    assert targets[0] >= targets[1]
