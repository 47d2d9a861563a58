"""Mask R-CNN beside the published reference's own code: start weights of pyramid and heads, optimizer, rates, matches,
codes, anchors, training images and their objects, and what a detection becomes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests import needs
from tests.references.configs import maskrcnn
from tests.references.published_code import V1_1, export, importing
from train_bench.references.maskrcnn import data, images, order, proposals, quality
from train_bench.references.maskrcnn import model as ours
from train_bench.references.maskrcnn.recipe import StepDecay, optimizer_of
from train_bench.references.parts.generators import Generators

pytestmark = [needs.published, pytest.mark.filterwarnings("ignore")]
ABSENT = ("apex", "maskrcnn_benchmark._C", "maskrcnn_benchmark.config", "yacs", "yacs.config")
CLASSES = 81


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of the reference by name."""
    folder = export("training", V1_1, "object_detection/pytorch", tmp_path_factory.mktemp("published"))
    names = {
        "build": "solver.build",
        "rpn": "modeling.rpn.rpn",
        "fpn": "modeling.backbone.fpn",
        "layers": "modeling.make_layers",
        "box": "modeling.roi_heads.box_head.roi_box_predictors",
        "mask": "modeling.roi_heads.mask_head.roi_mask_predictors",
        "detected": "modeling.roi_heads.box_head.inference",
        "lists": "structures.boxlist_ops",
        "boxes": "structures.bounding_box",
        "coco": "data.datasets.coco",
        "transforms": "data.transforms.transforms",
        "batches": "data.build",
        "rows": "data.datasets.evaluation.coco.coco_eval",
    }
    with pytest.MonkeyPatch.context() as patch, importing(folder, *ABSENT) as load:
        patch.setattr(torch, "_six", SimpleNamespace(PY3=True), raising=False)
        yield SimpleNamespace(**{name: load(f"maskrcnn_benchmark.{path}") for name, path in names.items()})


def heads(published: Any) -> list[nn.Module]:
    """Pyramid, proposal head, dense layers and outputs of boxes, mask layers and output, in the order of ours."""
    options = SimpleNamespace(
        ROI_BOX_HEAD=SimpleNamespace(NUM_CLASSES=CLASSES, MLP_HEAD_DIM=1024),
        ROI_MASK_HEAD=SimpleNamespace(CONV_LAYERS=(256,) * 4),
        ROI_HEADS=SimpleNamespace(USE_FPN=True),
        CLS_AGNOSTIC_BBOX_REG=False,
    )
    cfg, layers = SimpleNamespace(MODEL=options), published.layers
    pyramid = published.fpn.FPN([256, 512, 1024, 2048], 256, layers.conv_with_kaiming_uniform())
    return [
        *(getattr(pyramid, f"fpn_inner{number}") for number in (1, 2, 3, 4)),
        *(getattr(pyramid, f"fpn_layer{number}") for number in (1, 2, 3, 4)),
        *published.rpn.RPNHead(cfg, 256, 3).children(),
        *(layers.make_fc(256 * 49, 1024), layers.make_fc(1024, 1024)),
        *published.box.FPNPredictor(cfg).children(),
        *(layers.make_conv3x3(256, 256) for _ in range(4)),
        *published.mask.MaskRCNNC4Predictor(cfg).children(),
    ]


def our_heads() -> list[nn.Module]:
    """The same of ours."""
    parts = [
        ours.Pyramid([256, 512, 1024, 2048], 256),
        ours.ProposalHead(256),
        ours.BoxHead(256, 1024, CLASSES),
        ours.MaskHead(256, 256, CLASSES),
    ]
    return [layer for part in parts for layer in part.modules() if hasattr(layer, "weight")]


def test_pyramid_and_heads_start_as_the_references(published: Any) -> None:
    """Shapes, biases, deviation and largest value of every layer."""
    torch.manual_seed(1)
    for mine, layer in zip(our_heads(), heads(published), strict=True):
        assert mine.weight.shape == layer.weight.shape and torch.equal(mine.bias, layer.bias)
        assert torch.isclose(
            mine.weight.std(), layer.weight.std(), rtol=0.02 + 5 * mine.weight.numel() ** -0.5
        ), mine
        assert torch.isclose(mine.weight.abs().max(), layer.weight.abs().max(), rtol=0.3), mine


class Two(nn.Module):
    """A layer with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)


def settings(method: str) -> SimpleNamespace:
    """The solver of the reference: base 0.02, slope 0.0005 over 30 steps, boundaries at 40 and 50."""
    return SimpleNamespace(
        SOLVER=SimpleNamespace(
            BASE_LR=0.02,
            WEIGHT_DECAY=1e-4,
            BIAS_LR_FACTOR=2,
            WEIGHT_DECAY_BIAS=0,
            MOMENTUM=0.9,
            STEPS=(40, 50),
            GAMMA=0.1,
            WARMUP_FACTOR=0.0005,
            WARMUP_ITERS=30,
            WARMUP_METHOD=method,
        )
    )


def test_weights_after_steps_are_the_references(published: Any) -> None:
    """Of the points' method, the scheduler before the optimizer as in the reference's loop: its step is one ahead."""
    torch.manual_seed(2)
    one, other = Two(), Two()
    other.load_state_dict(one.state_dict())
    mine = optimizer_of(one, maskrcnn("maskrcnn"))
    theirs = published.build.make_optimizer(settings("mlperf_linear"), other)
    scheduler = published.build.make_lr_scheduler(settings("mlperf_linear"), theirs)
    schedule = StepDecay(
        base=0.02,
        warmup_method="mlperf_linear",
        warmup_steps=30,
        warmup_factor=0.0005,
        decay=0.1,
        boundaries=(40, 50),
    )
    for step in range(1, 61):
        scheduler.step()
        for group in mine.param_groups:
            group["lr"] = schedule(step, factor=group["rate"])
        for network, optimizer in ((one, mine), (other, theirs)):
            optimizer.zero_grad()
            (network.layer(torch.ones(3)) - 1.0).square().sum().backward()
            optimizer.step()
        assert torch.allclose(one.layer.weight, other.layer.weight, rtol=1e-4, atol=1e-6), step
        assert torch.allclose(one.layer.bias, other.layer.bias, rtol=1e-4, atol=1e-6), step


SIZES = [(60, 80), (90, 50), (64, 64), (40, 100), (30, 30)]
"""Heights and widths of some images."""


@pytest.fixture
def annotated(tmp_path: Path) -> Path:
    """A folder as COCO's, of the same images for training and evaluation: with two objects, a crowd, an object that
    reaches over the border, one whose object is a pixel wide, and one without any."""
    rng, objects = np.random.default_rng(1), []
    boxes = {
        0: [(5, 6, 20, 30), (30, 10, 40, 45)],
        1: [(1, 2, 30, 60)],
        2: [(50, 50, 30, 40)],
        3: [(7, 7, 1, 9)],
    }
    for image, of_image in boxes.items():
        for x, y, width, height in of_image:
            corners = [x, y, x + width, y, x + width, y + height, x + 0.5, y + height]
            number = len(objects) + 1
            objects.append(
                {"id": number, "image_id": image + 1, "category_id": 3 + number % 2, "iscrowd": 0}
                | {"bbox": [x, y, width, height], "area": width * height, "segmentation": [corners]}
            )
    objects[2]["iscrowd"] = 1
    objects.append({**objects[2], "id": 9, "iscrowd": 0, "bbox": [3, 4, 20, 30]})
    (tmp_path / "annotations").mkdir()
    for split in ("train", "val"):
        (tmp_path / f"{split}2017").mkdir()
        listed = []
        for number, (height, width) in enumerate(SIZES, start=1):
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{split}2017" / f"{number}.png")
            listed.append({"id": number, "file_name": f"{number}.png", "height": height, "width": width})
        categories = [{"id": 3, "name": "a"}, {"id": 4, "name": "b"}]
        content = {"images": listed, "annotations": objects, "categories": categories}
        (tmp_path / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_training_images_and_objects_are_the_references(published: Any, annotated: Path, flip: float) -> None:
    """Which images, pixels, boxes, labels and polygons; crowds and what is no wider than a pixel are left out."""
    sizes = ("hyperparameters.min_image_size=70", "hyperparameters.max_image_size=110")
    config = maskrcnn("maskrcnn", "train_samples=3", "eval_samples=5", "model.num_classes=3", *sizes)
    mine, _ = data.open_splits(config, annotated)
    examples = data.TrainingSet(
        split=mine,
        hyperparameters=config.hyperparameters,
        flip=flip,
        means=config.data.means,
        generators=Generators(1),
        objects_of=data.owners(mine, permuted=False),
    )
    steps = published.transforms
    change = steps.Compose(
        [
            steps.Resize(70, 110),
            steps.RandomHorizontalFlip(flip),
            steps.ToTensor(),
            steps.Normalize([102.9801, 115.9465, 122.7717], [1.0, 1.0, 1.0]),
        ]
    )
    file = annotated / "annotations" / "instances_train2017.json"
    theirs = published.coco.COCODataset(str(file), str(annotated / "train2017"), True, change)
    assert [one + 1 for one in mine.images.tolist()] == theirs.ids
    for place in range(len(theirs)):
        pixels, objects, _ = examples[(place, place)]
        expected, target, _ = theirs[place]
        assert torch.allclose(pixels, expected, atol=1e-3)
        assert torch.allclose(objects.boxes, target.bbox, atol=1e-4)
        assert objects.labels.tolist() == target.get_field("labels").tolist()
        polygons = [one.polygons for one in target.get_field("masks").polygons]
        for ours_of, theirs_of in zip(objects.masks, polygons, strict=True):
            for part, other in zip(ours_of, theirs_of, strict=True):
                assert np.allclose(part, other.numpy(), atol=1e-4)


def test_sizes_of_images_are_the_references(published: Any) -> None:
    rng, resize = np.random.default_rng(2), published.transforms.Resize(800, 1333)
    for height, width in rng.integers(20, 2000, (2000, 2)).tolist():
        assert images.resized(height, width, 800, 1333) == resize.get_size((width, height))


def test_images_are_grouped_as_by_the_reference(published: Any) -> None:
    ratios = [height / width for height, width in SIZES]
    assert order.tall(np.array(SIZES)).tolist() == [
        bool(one) for one in published.batches._quantize(ratios, [1])
    ]


def slow_nms(boxes: torch.Tensor, scores: torch.Tensor, above: float) -> torch.Tensor:
    """The reference's kernel: sides have a pixel more than their difference."""
    kept: list[int] = []
    for place in scores.argsort(descending=True).tolist():
        if all(overlap(boxes[place], boxes[other]) <= above for other in kept):
            kept.append(place)
    return torch.tensor(kept, dtype=torch.int64)


def overlap(one: torch.Tensor, other: torch.Tensor) -> float:
    """Intersection over union."""
    low, high = torch.maximum(one[:2], other[:2]), torch.minimum(one[2:], other[2:])
    inner = (high - low + 1).clamp(min=0).prod()
    return float(inner / (sum((box[2:] - box[:2] + 1).prod() for box in (one, other)) - inner))


@pytest.mark.slow
def test_detections_and_their_rows_are_the_references(
    published: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes, scores and labels from logits and codes; boxes and masks as rows of COCO in pixels of the image."""
    config, generator = maskrcnn("maskrcnn"), torch.Generator().manual_seed(3)
    monkeypatch.setattr(published.lists, "_box_nms", slow_nms)
    low = torch.rand(60, 2, generator=generator) * 150
    rois = torch.cat([low, low + 10 + torch.rand(60, 2, generator=generator) * 60], dim=1)
    logits = 3 * torch.randn(60, 6, generator=generator)
    codes = 0.5 * torch.randn(60, 6, 4, generator=generator)
    detection = config.detection
    boxes, scores, labels = proposals.detect(logits, codes, rois, (180, 240), detection)
    process = published.detected.PostProcessor(detection.score_above, detection.nms, detection.detections)
    theirs = process((logits, codes.flatten(1)), [published.boxes.BoxList(rois, (240, 180))])[0]
    by_score = theirs.get_field("scores").argsort(descending=True)
    assert torch.allclose(scores, theirs.get_field("scores")[by_score])
    assert torch.equal(labels, theirs.get_field("labels")[by_score])
    assert torch.allclose(boxes, theirs.bbox[by_score], atol=1e-3)
    masks = torch.rand(len(boxes), 28, 28, generator=generator)
    theirs = theirs[by_score]
    theirs.add_field("mask", masks[:, None])
    found = proposals.Detected(boxes=boxes, scores=scores, labels=labels, masks=masks)
    rows = quality.results(found, 7, (180, 240), (95, 131))
    numbered = {number: number for number in range(6)}
    dataset = SimpleNamespace(
        id_to_img_map=[7],
        contiguous_category_id_to_json_id=numbered,
        get_img_info=lambda _: {"width": 131, "height": 95},
    )
    expected = published.rows.prepare_for_coco_detection([theirs], dataset)
    segments = published.rows.prepare_for_coco_segmentation([theirs], dataset)
    for row, box, segment in zip(rows, expected, segments, strict=True):
        assert (row["image_id"], row["category_id"]) == (box["image_id"], box["category_id"])
        assert np.allclose(row["bbox"], box["bbox"], atol=1e-3)
        assert row["segmentation"]["counts"].decode() == segment["segmentation"]["counts"]
