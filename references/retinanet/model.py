"""RetinaNet (Lin et al. 2017) on a ResNeXt with a feature pyramid, at any width and depth.

The full benchmark has ResNeXt-50 32x4d and the levels P3 to P7: 37,060,652 parameters, of which 211,648 are frozen.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from torch import Tensor, cat, nn
from torchvision.models.resnet import Bottleneck
from torchvision.ops import FeaturePyramidNetwork
from torchvision.ops.feature_pyramid_network import LastLevelP6P7
from torchvision.ops.misc import FrozenBatchNorm2d

from train_bench.errors import UnknownName
from train_bench.references.retinanet.anchors import KINDS
from train_bench.references.retinanet.config import Model

NORMS: dict[str, Callable[[int], nn.Module]] = {"frozen": FrozenBatchNorm2d, "batch": nn.BatchNorm2d}
LEVELS = 3
"""Stages whose outputs go into the pyramid, from the last one; two coarser levels follow."""

HEAD_LAYERS = 4
PRIOR = 0.01
"""Share of anchors that are objects, as scores have it before training (Lin et al., section 4.1)."""

UNUSED = ("fc.",)
"""Parameters of torchvision's ResNeXt-50 besides the backbone."""


class Backbone(nn.Module):
    """Stem and stages; parameters are named as in torchvision's ResNeXt-50."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        if shape.norm not in NORMS:
            raise UnknownName(what="normalisation (model.norm)", name=shape.norm, known=NORMS)
        kernel = shape.stem_kernel
        self.conv1 = nn.Conv2d(3, shape.stem_width, kernel, stride=2, padding=kernel // 2, bias=False)
        self.bn1 = NORMS[shape.norm](shape.stem_width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if shape.stem_pool else nn.Identity()
        inputs = shape.stem_width
        for number, (width, blocks) in enumerate(zip(shape.widths, shape.blocks, strict=True), start=1):
            self.add_module(f"layer{number}", _stage(shape, inputs, width, blocks, 1 if number == 1 else 2))
            inputs = width * Bottleneck.expansion
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        if shape.frozen_stages:
            frozen = ("conv1", "bn1", *(f"layer{number + 1}" for number in range(shape.frozen_stages)))
            for name in frozen:
                self.get_submodule(name).requires_grad_(False)
        self.stages = len(shape.widths)

    def forward(self, images: Tensor) -> OrderedDict[str, Tensor]:
        """(samples, 3, h, w) -> the maps of the last three stages, the finest first."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        maps = OrderedDict()
        for number in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{number}")(x)
            maps[f"layer{number}"] = x
        return OrderedDict(list(maps.items())[-LEVELS:])


class Head(nn.Module):
    """Four 3x3 convolutions and one for `columns` numbers per anchor, the same on every level."""

    def __init__(self, shape: Model, columns: int, bias: float = 0.0) -> None:
        super().__init__()
        channels, self.columns = shape.fpn_channels, columns
        self.tower = nn.Sequential()
        for _ in range(HEAD_LAYERS):
            self.tower.append(nn.Conv2d(channels, channels, 3, padding=1))
            self.tower.append(nn.ReLU(inplace=True))
        self.out = nn.Conv2d(channels, KINDS * columns, 3, padding=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d) and layer.bias is not None:
                nn.init.normal_(layer.weight, std=shape.head_deviation)
                nn.init.constant_(layer.bias, bias if layer is self.out else 0.0)

    def forward(self, levels: list[Tensor]) -> Tensor:
        """One map per level -> (samples, anchors, columns), in the order of `anchors.anchors`."""
        found = []
        for level in levels:
            x = self.out(self.tower(level))
            samples, _, rows, places = x.shape
            x = x.view(samples, KINDS, self.columns, rows, places).permute(0, 3, 4, 1, 2)
            found.append(x.reshape(samples, -1, self.columns))
        return cat(found, dim=1)


class RetinaNet(nn.Module):
    """Backbone, pyramid and two heads."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        channels = shape.fpn_channels
        self.backbone = Backbone(shape)
        self.fpn = FeaturePyramidNetwork(
            [width * Bottleneck.expansion for width in shape.widths[-LEVELS:]],
            channels,
            extra_blocks=LastLevelP6P7(channels, channels),
        )
        self.scores = Head(shape, shape.num_classes, bias=-math.log((1 - PRIOR) / PRIOR))
        self.codes = Head(shape, 4)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(samples, 3, side, side) -> box codes (samples, anchors, 4), logits (samples, anchors, classes)."""
        levels = list(self.fpn(self.backbone(images)).values())
        return self.codes(levels), self.scores(levels)


def _stage(shape: Model, inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    norm, outputs = NORMS[shape.norm], width * Bottleneck.expansion
    block = partial(Bottleneck, groups=shape.groups, base_width=shape.width_per_group, norm_layer=norm)
    shortcut = None
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), norm(outputs))
    first = block(inputs, width, stride, shortcut)
    return nn.Sequential(first, *(block(outputs, width) for _ in range(1, blocks)))
