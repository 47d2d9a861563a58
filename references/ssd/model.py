"""SSD (Liu et al. 2016) on the first three stages of a ResNet of basic blocks, at any width and depth.

The full benchmark cuts ResNet-34 after layer3, whose first block has stride 1 here, so that an image of
300 pixels gives feature maps of 38, 19, 10, 5, 3 and 1: 19,972,534 parameters.
"""

from __future__ import annotations

from torch import Tensor, cat, nn
from torchvision.models.resnet import BasicBlock

from train_bench.references.ssd.config import Model

PREFIX = "ssd0_"
BACKBONE = f"{PREFIX}resnetmlperf0_"

UNUSED = ("layer4.", "fc.")
"""Parameters of torchvision's ResNet-34 besides the backbone."""


class Backbone(nn.Module):
    """Stem and three stages; parameters are named as in torchvision's ResNet-34."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        kernel = shape.stem_kernel
        self.conv1 = nn.Conv2d(
            3, shape.stem_width, kernel, stride=shape.stem_stride, padding=kernel // 2, bias=False
        )
        self.bn1 = nn.BatchNorm2d(shape.stem_width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if shape.stem_pool else nn.Identity()
        inputs = shape.stem_width
        stages = zip(shape.widths, shape.blocks, shape.strides, strict=True)
        for number, (width, blocks, stride) in enumerate(stages, start=1):
            self.add_module(f"layer{number}", _stage(inputs, width, blocks, stride))
            inputs = width

    def forward(self, images: Tensor) -> Tensor:
        """(samples, 3, h, w) -> (samples, last width, h / stride, w / stride)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return self.get_submodule("layer3")(self.get_submodule("layer2")(self.get_submodule("layer1")(x)))


class SSD(nn.Module):
    """Backbone, extra feature maps, and per map one 3x3 convolution for offsets and one for classes."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.classes = shape.num_classes + 1
        self.backbone = Backbone(shape)
        self.extra = nn.ModuleList()
        channels = [shape.widths[-1]]
        for inner, outputs, stride, padding in shape.extra:
            self.extra.append(
                nn.Sequential(
                    nn.Conv2d(channels[-1], inner, 1),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(inner, outputs, 3, stride=stride, padding=padding),
                    nn.ReLU(inplace=True),
                )
            )
            channels.append(outputs)
        per_place = [2 + 2 * len(ratios) for ratios in shape.aspect_ratios]
        maps = list(zip(channels, per_place, strict=True))
        self.offsets = nn.ModuleList([nn.Conv2d(inputs, 4 * boxes, 3, padding=1) for inputs, boxes in maps])
        self.scores = nn.ModuleList(
            [nn.Conv2d(inputs, self.classes * boxes, 3, padding=1) for inputs, boxes in maps]
        )
        initialize(self)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(samples, 3, side, side) -> offsets (samples, 4, priors), logits (samples, K + 1, priors).

        In the channels of a head the coordinate or class is the slow index, the kind of box the fast one.
        """
        features = [self.backbone(images)]
        for layer in self.extra:
            features.append(layer(features[-1]))
        samples = len(images)
        offsets = [
            head(map_).reshape(samples, 4, -1) for head, map_ in zip(self.offsets, features, strict=True)
        ]
        logits = [
            head(map_).reshape(samples, self.classes, -1)
            for head, map_ in zip(self.scores, features, strict=True)
        ]
        return cat(offsets, dim=2), cat(logits, dim=2)


def _stage(inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    shortcut = None
    if stride != 1 or inputs != width:
        shortcut = nn.Sequential(
            nn.Conv2d(inputs, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
        )
    first = BasicBlock(inputs, width, stride, shortcut)
    return nn.Sequential(first, *(BasicBlock(width, width) for _ in range(1, blocks)))


def initialize(model: SSD) -> None:
    """Draw the start weights from torch's generator. Extra layers and heads: Xavier uniform weights, biases
    uniform within 1 / sqrt(fan-in), which is the framework's default. Backbone without start weights:
    He normal over the fan-out, as torchvision does."""
    for layer in model.backbone.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    for part in (model.extra, model.offsets, model.scores):
        for layer in part.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.xavier_uniform_(layer.weight)


def tensor_names(model: SSD) -> list[str]:
    """The tensors of `model` as the rules name them: 119 for the full benchmark. The rules have one
    predictor per feature map where there are two heads here."""
    names = [f"{BACKBONE}conv0_weight", f"{BACKBONE}batchnorm0_gamma", f"{BACKBONE}batchnorm0_beta"]
    for stage in (1, 2, 3):
        layers = model.backbone.get_submodule(f"layer{stage}").modules()
        for number in range(sum(isinstance(layer, nn.Conv2d) for layer in layers)):
            place = f"{BACKBONE}stage{stage}_"
            names += [f"{place}conv{number}_weight"]
            names += [f"{place}batchnorm{number}_{kind}" for kind in ("gamma", "beta")]
    for kind in ("trans_conv", "conv"):
        for number in range(len(model.extra)):
            names += [f"{PREFIX}expand_{kind}{number}_{part}" for part in ("weight", "bias")]
    for number in range(len(model.scores)):
        names += [f"{PREFIX}convpredictor{number}_conv0_{part}" for part in ("weight", "bias")]
    return names
