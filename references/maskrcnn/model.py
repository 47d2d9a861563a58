"""The network: ResNet with the stride in the first 1x1 convolution, a feature pyramid, and three heads.

He et al., "Mask R-CNN" (2017); Lin et al., "Feature Pyramid Networks" (2017). The full benchmark has
44,347,573 parameters, of which 222,400 are frozen.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.errors import UnknownName
from train_bench.references.maskrcnn.boxes import RATIOS
from train_bench.references.maskrcnn.config import Model

MASK_SIDE = 28
"""Pixels of a predicted mask; the features it comes from have half of them."""

BOX_SIDE = 7
MASK_LAYERS = 4


class FrozenNorm(nn.Module):
    """A fixed affine map per channel, y = (x - mean) w / sqrt(var) + b, without epsilon."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(channels))
        self.register_buffer("bias", torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def affine(self) -> tuple[Tensor, Tensor]:
        """Scale and shift per channel."""
        scale = self.weight * self.running_var.rsqrt()
        return scale, self.bias - self.running_mean * scale


class NormedConv(nn.Module):
    """A convolution without bias and its normalisation. A frozen one is folded into the kernel: the same
    function and the same gradient, without two passes over the output."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, norm: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.norm: nn.Module = FrozenNorm(outputs) if norm == "frozen" else nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, inputs, h, w) -> (samples, outputs, h / stride, w / stride)."""
        if not isinstance(self.norm, FrozenNorm):
            return self.norm(self.conv(x))
        scale, shift = self.norm.affine()
        conv = self.conv
        kernel = conv.weight * scale.view(-1, 1, 1, 1)
        return functional.conv2d(x, kernel, shift, conv.stride, conv.padding)


class Bottleneck(nn.Module):
    """1x1 to `width` with the stride, 3x3, 1x1 to `outputs`, added to the shortcut."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.branch2a = NormedConv(inputs, width, 1, stride=stride, norm=norm)
        self.branch2b = NormedConv(width, width, 3, norm=norm)
        self.branch2c = NormedConv(width, outputs, 1, norm=norm)
        project = stride > 1 or inputs != outputs
        self.branch1 = NormedConv(inputs, outputs, 1, stride=stride, norm=norm) if project else None

    def forward(self, x: Tensor) -> Tensor:
        """(samples, inputs, h, w) -> (samples, outputs, h / stride, w / stride)."""
        shortcut = x if self.branch1 is None else self.branch1(x)
        x = functional.relu_(self.branch2a(x))
        x = functional.relu_(self.branch2b(x))
        return functional.relu_(self.branch2c(x).add_(shortcut))


class Backbone(nn.Module):
    """Stem and stages; their outputs, the finest first."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        if shape.norm not in ("frozen", "batch"):
            raise UnknownName(what="normalisation (model.norm)", name=shape.norm, known=("frozen", "batch"))
        self.pool = shape.stem_pool
        self.stem = NormedConv(3, shape.stem_width, shape.stem_kernel, stride=2, norm=shape.norm)
        self.stages = nn.ModuleList()
        inputs = shape.stem_width
        for number, (width, blocks) in enumerate(zip(shape.widths, shape.blocks, strict=True)):
            stage = nn.Sequential()
            for block in range(blocks):
                stride = 2 if number > 0 and block == 0 else 1
                outputs = width * shape.expansion
                stage.append(Bottleneck(inputs, width, outputs, stride, shape.norm))
                inputs = outputs
            self.stages.append(stage)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        frozen = [self.stem, *self.stages[: shape.frozen_stages]] if shape.frozen_stages else []
        for part in frozen:
            part.requires_grad_(False)

    def forward(self, images: Tensor) -> list[Tensor]:
        """(samples, 3, h, w) -> one map per stage."""
        x = functional.relu_(self.stem(images))
        if self.pool:
            x = functional.max_pool2d(x, 3, stride=2, padding=1)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


class Pyramid(nn.Module):
    """1x1 laterals, nearest top-down sums, 3x3 outputs, and one coarser level by subsampling."""

    def __init__(self, inputs: list[int], channels: int) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Conv2d(width, channels, 1) for width in inputs)
        self.layer = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in inputs)
        for conv in (*self.inner, *self.layer):
            nn.init.kaiming_uniform_(cast(nn.Conv2d, conv).weight, a=1)
            nn.init.zeros_(cast(Tensor, conv.bias))

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """One map per stage -> one more level than stages, all with the same channels."""
        top = self.inner[-1](maps[-1])
        levels = [self.layer[-1](top)]
        for index in range(len(maps) - 2, -1, -1):
            lateral = self.inner[index](maps[index])
            top = lateral + functional.interpolate(top, size=lateral.shape[-2:], mode="nearest")
            levels.insert(0, self.layer[index](top))
        return [*levels, levels[-1][:, :, ::2, ::2]]


class ProposalHead(nn.Module):
    """Objectness and box codes of every anchor."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.cls = nn.Conv2d(channels, len(RATIOS), 1)
        self.bbox = nn.Conv2d(channels, 4 * len(RATIOS), 1)
        for layer in (self.conv, self.cls, self.bbox):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(cast(Tensor, layer.bias))

    def forward(self, levels: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Per level (samples, anchors) logits and (samples, anchors, 4) codes in the order of
        `boxes.grid_anchors`."""
        logits, codes = [], []
        for level in levels:
            x = functional.relu_(self.conv(level))
            samples = len(x)
            logits.append(self.cls(x).permute(0, 2, 3, 1).reshape(samples, -1).float())
            codes.append(self.bbox(x).permute(0, 2, 3, 1).reshape(samples, -1, 4).float())
        return logits, codes


class BoxHead(nn.Module):
    """Class logits and class-specific box codes of every RoI."""

    def __init__(self, channels: int, features: int, classes: int) -> None:
        super().__init__()
        self.fc6 = nn.Linear(channels * BOX_SIDE * BOX_SIDE, features)
        self.fc7 = nn.Linear(features, features)
        self.cls = nn.Linear(features, classes)
        self.bbox = nn.Linear(features, 4 * classes)
        nn.init.kaiming_uniform_(self.fc6.weight, a=1)
        nn.init.kaiming_uniform_(self.fc7.weight, a=1)
        nn.init.normal_(self.cls.weight, std=0.01)
        nn.init.normal_(self.bbox.weight, std=0.001)
        for layer in (self.fc6, self.fc7, self.cls, self.bbox):
            nn.init.zeros_(layer.bias)

    def forward(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """(rois, channels, 7, 7) -> (rois, classes), (rois, classes, 4)."""
        x = functional.relu_(self.fc6(pooled.flatten(1)))
        x = functional.relu_(self.fc7(x))
        return self.cls(x).float(), self.bbox(x).float().reshape(len(x), -1, 4)


class MaskHead(nn.Module):
    """A mask per RoI and class."""

    def __init__(self, inputs: int, channels: int, classes: int) -> None:
        super().__init__()
        widths = [inputs] + [channels] * MASK_LAYERS
        self.fcn = nn.ModuleList(
            nn.Conv2d(widths[number], channels, 3, padding=1) for number in range(MASK_LAYERS)
        )
        self.fcn5 = nn.ConvTranspose2d(channels, channels, 2, stride=2)
        self.fcn_logits = nn.Conv2d(channels, classes, 1)
        for layer in (*self.fcn, self.fcn5, self.fcn_logits):
            nn.init.kaiming_normal_(cast(Tensor, layer.weight), mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(cast(Tensor, layer.bias))

    def forward(self, pooled: Tensor) -> Tensor:
        """(rois, channels, 14, 14) -> (rois, classes, 28, 28) logits."""
        x = pooled
        for conv in self.fcn:
            x = functional.relu_(conv(x))
        return self.fcn_logits(functional.relu_(self.fcn5(x))).float()


class Network(nn.Module):
    """All trained modules; `detector.py` connects them."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.backbone = Backbone(shape)
        self.fpn = Pyramid([width * shape.expansion for width in shape.widths], shape.fpn_channels)
        self.rpn = ProposalHead(shape.fpn_channels)
        self.box = BoxHead(shape.fpn_channels, shape.box_features, shape.num_classes)
        self.mask = MaskHead(shape.fpn_channels, shape.mask_channels, shape.num_classes)


def tensor_names(stages: int) -> list[str]:
    """The layers that start from random weights, as the rules name them; 21 for the full benchmark."""
    pyramid = [f"FPN_{kind}_block{number + 1}" for number in range(stages) for kind in ("inner", "layer")]
    return [
        *pyramid,
        *("RPNHead_conv", "RPNHead_cls", "RPNHead_bbox"),
        *("ROI_BOX_FEATURE_EXTRACTOR_fc6", "ROI_BOX_FEATURE_EXTRACTOR_fc7"),
        *("ROI_BOX_PREDICTOR_cls", "ROI_BOX_PREDICTOR_bbox"),
        *(f"ROI_MASK_FEATURE_EXTRACTOR_fcn{number + 1}" for number in range(MASK_LAYERS)),
        *("ROI_MASK_PREDICTOR_fcn5", "ROI_MASK_PREDICTOR_fcn_logits"),
    ]
