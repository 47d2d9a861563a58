"""Mask R-CNN beside the published reference's own code: start weights of pyramid and heads, optimizer, rates, matches,
codes and anchors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests import needs
from tests.references.configs import maskrcnn
from tests.references.published_code import V1_1, export, importing
from train_bench.references.maskrcnn import model as ours
from train_bench.references.maskrcnn.recipe import StepDecay, optimizer_of

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
    }
    with importing(folder, *ABSENT) as load:
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
