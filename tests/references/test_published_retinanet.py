"""RetinaNet beside the published reference's own code: network, start weights, anchors, loss, rate, flips, resizing and
detections."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.ops.misc import FrozenBatchNorm2d

from tests import needs
from tests.references.configs import retinanet
from tests.references.published_code import NEWEST, export, importing
from tests.references.test_retinanet import (
    SIDE,
    assert_same_outputs_losses_and_gradients,
    openimages,
    ours_with_the_weights_of,
    small,
)
from tests.references.torchvision_parts import ROUNDING, apart
from train_bench.references.retinanet import data
from train_bench.references.retinanet.anchors import anchors
from train_bench.references.retinanet.config import Model
from train_bench.references.retinanet.detections import detect
from train_bench.references.retinanet.model import RetinaNet
from train_bench.references.retinanet.recipe import WarmUp

__all__ = ["openimages"]

pytestmark = [needs.published, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of the reference by name."""
    folder = export(
        "training", NEWEST, "retired_benchmarks/retinanet/ssd", tmp_path_factory.mktemp("published")
    )
    names = ["model.retinanet", "model.image_list", "utils", "transforms", "presets", "coco_utils"]
    with importing(folder, "ssd_logger") as load:
        yield SimpleNamespace(**{name.rpartition(".")[2]: load(name) for name in names})


def network(published: Any, classes: int, side: int) -> nn.Module:
    """The reference's, with a backbone that starts at random."""
    found = published.retinanet.retinanet_from_backbone(
        "resnext50_32x4d",
        num_classes=classes,
        image_size=[side, side],
        pretrained=False,
        pretrained_backbone=False,
        trainable_backbone_layers=5,
    )
    assert isinstance(found, nn.Module)
    return found


@pytest.fixture(scope="module")
def both(published: Any) -> tuple[RetinaNet, nn.Module]:
    """Both with the same weights, in double."""
    torch.manual_seed(0)
    theirs = frozen(network(published, 7, SIDE)).double()
    return ours_with_the_weights_of(theirs), theirs


def frozen(model: nn.Module) -> nn.Module:
    """With frozen batch norms in place of trained ones: the reference has these where its backbone is pretrained."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.BatchNorm2d):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, FrozenBatchNorm2d(layer.num_features, eps=layer.eps))
    return model


@pytest.mark.full
def test_outputs_losses_and_gradients_are_the_references(both: tuple[RetinaNet, nn.Module]) -> None:
    assert_same_outputs_losses_and_gradients(*both)


def test_anchors_of_the_full_scale_are_the_references(published: Any) -> None:
    maps = [torch.zeros(1, 1, side, side) for side in (100, 50, 25, 13, 7)]
    images = published.image_list.ImageList(torch.zeros(1, 3, 800, 800), [(800, 800)])
    (expected,) = network(published, 1, 800).anchor_generator(images, maps)
    assert torch.equal(torch.cat(anchors(Model())), expected)


def test_pyramid_and_heads_start_as_the_references(published: Any) -> None:
    """Deviation and largest value of each tensor, and the biases."""
    torch.manual_seed(2)
    ours = RetinaNet(Model())
    head = [*ours.named_parameters()][-40:]
    theirs = [*network(published, 264, 800).named_parameters()][-40:]
    for (name, one), (_, other) in zip(head, theirs, strict=True):
        if one.dim() == 1:
            assert torch.equal(one, other), name
        else:
            assert torch.isclose(one.std(), other.std(), rtol=0.05), name


def test_rates_are_the_references(published: Any) -> None:
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=1e-4)
    scheduler = published.utils.warmup_lr_scheduler(optimizer, 0, 50, 1e-3)
    schedule = WarmUp(base=1e-4, factor=1e-3, steps=50)
    for step in range(60):
        assert schedule(step) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        optimizer.step()
        scheduler.step()


def test_detections_are_the_references(both: tuple[RetinaNet, nn.Module]) -> None:
    ours, theirs = both
    torch.manual_seed(3)
    levels = anchors(Model(image_size=SIDE))
    counts = [len(level) for level in levels]
    with torch.no_grad():
        codes, logits = (each.float() for each in ours(torch.randn(1, 3, SIDE, SIDE, dtype=torch.float64)))
    logits = logits - logits.mean() + torch.randn_like(logits) - 2
    split = {"bbox_regression": list(codes.split(counts, 1)), "cls_logits": list(logits.split(counts, 1))}
    theirs.detections_per_img = 300
    (expected,) = theirs.postprocess_detections(split, [levels], [(SIDE, SIDE)])
    corners, scores, labels = detect(codes[0], logits[0], levels, SIDE)
    assert torch.equal(labels - 1, expected["labels"])
    assert apart(scores, expected["scores"]) < ROUNDING
    assert apart(SIDE * corners, expected["boxes"]) < 1e-5


def test_the_reference_keeps_300_detections_and_is_pretrained_as_here(published: Any) -> None:
    model = network(published, 264, 800)
    assert (model.detections_per_img, model.topk_candidates, model.score_thresh, model.nms_thresh) == (
        *(300, 1000, 0.05, 0.5),
    )
    assert retinanet("retinanet").model.num_classes == 264
    assert np.isclose(model.transform.image_mean, [0.485, 0.456, 0.406]).all()


@pytest.mark.parametrize("split", ["train", "val"])
def test_images_and_objects_are_the_references(published: Any, openimages: Path, split: str) -> None:
    """Also images without a box, boxes of less than a pixel, and groups."""
    theirs = published.coco_utils.get_openimages("openimages-mlperf", str(openimages), split, None)
    config = small(openimages, "model.start_weights=null")
    data.prepare(config, openimages, None)
    ours = data.open_splits(config, openimages)[split == "val"]
    assert len(theirs) == len(ours.images)
    for index in range(len(theirs)):
        image, target = theirs[index]
        assert np.array_equal(np.asarray(image), ours.pixels(int(ours.images[index])))
        boxes, labels = ours.objects(index, permuted=False)
        corners = torch.from_numpy(boxes) * torch.tensor([*image.size, *image.size])
        torch.testing.assert_close(corners.float(), target["boxes"], rtol=1e-5, atol=1e-4)
        assert (labels - 1).tolist() == target["labels"].tolist()  # 0 is the background here
