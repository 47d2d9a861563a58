"""ResNet v1.5: bottleneck blocks with the stride in the 3x3 convolution, at any width and depth.

He et al., "Deep Residual Learning for Image Recognition" (2015), table 1, with the later move of the
stride (v1.5). The full benchmark is ResNet-50: 25,557,032 parameters.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.resnet.config import Model

TRUNCATED_DEVIATION = 0.87962566103423978
"""Standard deviation of the unit normal after truncation at two deviations; dividing by it restores 1."""


def same_padded(x: Tensor, kernel: int, stride: int) -> Tensor:
    """(samples, channels, h, w) with zeros around it as TensorFlow's padding "same" has them: outputs of h / stride,
    rounded up, and of an odd number of zeros the last one is at the bottom and right. A ReLU precedes a pooling, whose
    zeros therefore are no more than its inputs."""
    missing = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in x.shape[2:]]
    (top, bottom), (left, right) = ((one // 2, one - one // 2) for one in missing)
    return functional.pad(x, (left, right, top, bottom))


class SameConv2d(nn.Conv2d):
    """A convolution of square kernels with the padding "same" of TensorFlow."""

    def forward(self, x: Tensor) -> Tensor:
        """(samples, inputs, h, w) -> (samples, outputs, h / stride, w / stride)."""
        return super().forward(same_padded(x, self.kernel_size[0], self.stride[0]))


class SameMaxPool2d(nn.MaxPool2d):
    """A pooling of what is not negative, with the padding "same" of TensorFlow."""

    kernel_size: int
    stride: int

    def forward(self, x: Tensor) -> Tensor:
        """(samples, channels, h, w) -> (samples, channels, h / stride, w / stride)."""
        return super().forward(same_padded(x, self.kernel_size, self.stride))


class Bottleneck(nn.Module):
    """1x1 to `width`, 3x3 with the stride, 1x1 to `outputs`, added to the shortcut."""

    def __init__(
        self, inputs: int, width: int, outputs: int, stride: int, *, project: bool, same_padding: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = (
            SameConv2d(width, width, 3, stride=stride, bias=False)
            if same_padding and stride > 1
            else nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        )
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv1sc = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False) if project else None
        self.bnsc = nn.BatchNorm2d(outputs) if project else None

    def forward(self, x: Tensor) -> Tensor:
        """(samples, inputs, h, w) -> (samples, outputs, h / stride, w / stride)."""
        shortcut = x if self.conv1sc is None or self.bnsc is None else self.bnsc(self.conv1sc(x))
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet(nn.Module):
    """Stem, stages of bottleneck blocks, global average, dense layer. Names follow the rules' tensor
    names, so that `initialized_tensors` is a translation of separators alone."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.shape = shape
        self.conv0 = nn.Conv2d(
            3,
            shape.stem_width,
            shape.stem_kernel,
            stride=shape.stem_stride,
            padding=shape.stem_kernel // 2,
            bias=False,
        )
        self.bn0 = nn.BatchNorm2d(shape.stem_width)
        self.relu = nn.ReLU(inplace=True)
        self.pool = _pool(shape)
        self.stages = nn.Sequential()
        inputs = shape.stem_width
        for number, (width, blocks, stride) in enumerate(
            zip(shape.widths, shape.blocks, shape.strides, strict=True), start=1
        ):
            self.stages.add_module(f"stage{number}", _stage(shape, inputs, width, blocks, stride))
            inputs = width * shape.expansion
        self.fc1 = nn.Linear(inputs, shape.num_classes)
        initialize(self, truncated=shape.truncated_init)

    def forward(self, images: Tensor) -> Tensor:
        """(samples, 3, h, w) with the means subtracted -> (samples, num_classes) logits."""
        x = self.pool(self.relu(self.bn0(self.conv0(images))))
        x = self.stages(x).mean(dim=(2, 3))
        return self.fc1(x)


def _pool(shape: Model) -> nn.Module:
    if not shape.stem_pool:
        return nn.Identity()
    return SameMaxPool2d(3, stride=2) if shape.same_padding else nn.MaxPool2d(3, stride=2, padding=1)


def _stage(shape: Model, inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    stage, outputs = nn.Sequential(), width * shape.expansion
    for unit in range(1, blocks + 1):
        first = unit == 1
        block = Bottleneck(
            inputs if first else outputs,
            width,
            outputs,
            stride if first else 1,
            project=first,
            same_padding=shape.same_padding,
        )
        stage.add_module(f"unit{unit}", block)
    return stage


def initialize(model: nn.Module, *, truncated: bool) -> None:
    """Draw the start weights from torch's generator.

    Convolutions: He normal over the fan-in (He et al. 2015, "Delving Deep into Rectifiers", eq. 10),
    truncated at two deviations with the variance restored, if `truncated`. Dense: N(0, 0.01), bias 0.
    Batch norm: gamma 1 (the last one of a block too), beta 0, running = 0.9 running + 0.1 batch.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            deviation = (2.0 / layer.weight[0].numel()) ** 0.5
            if truncated:
                deviation /= TRUNCATED_DEVIATION
                nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            else:
                nn.init.normal_(layer.weight, std=deviation)
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            layer.eps, layer.momentum = 1e-5, 0.1
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)


def tensor_names(model: nn.Module) -> list[str]:
    """The parameters of `model` as the rules name them: stages.stage1.unit1.bn1.weight is
    stage1_unit1_bn1_gamma. ResNet-50 has the 161 of the round 1.1.0."""
    names = []
    for name, _ in model.named_parameters():
        layer, _, kind = name.removeprefix("stages.").rpartition(".")
        if is_batch_norm(name):
            kind = {"weight": "gamma", "bias": "beta"}[kind]
        names.append(f"{layer.replace('.', '_')}_{kind}")
    return names


def is_batch_norm(name: str) -> bool:
    """True if the parameter called `name` in a ResNet belongs to a batch-norm layer."""
    return name.rpartition(".")[0].rpartition(".")[2].startswith("bn")
