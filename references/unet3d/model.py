"""3D U-Net with instance norm, at any depth and width.

After Çiçek et al., "3D U-Net" (2016), in the form of the MLPerf reference: strided convolutions go down,
transposed ones up, skips are concatenated behind what comes from below. The full benchmark has six
resolutions and 31,190,243 parameters.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.unet3d.config import Model

EPSILON = 1e-5


class InstanceNorm(nn.InstanceNorm3d):
    """Each channel of each sample by its own mean and variance, in the memory layout that comes.

    torch's own instance norm copies channels-last tensors to the default layout, and the next convolution would
    copy them back. Of one sample, batch norm is the same and keeps the layout; on a CPU it adds its squares up one
    by one, so that at 128^3 voxels its values are off by up to 3e-4 of themselves.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(samples, channels, d, h, w) -> the same shape."""
        if not x.is_contiguous(memory_format=torch.channels_last_3d):
            return super().forward(x)
        samples = [
            functional.batch_norm(sample, None, None, self.weight, self.bias, training=True, eps=self.eps)
            for sample in x.split(1)
        ]
        return torch.cat(samples) if len(samples) > 1 else samples[0]


class Convolution(nn.Module):
    """3x3x3 convolution without bias, instance norm without running statistics, ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.instancenorm = InstanceNorm(outputs, eps=EPSILON, affine=True)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, inputs, d, h, w) -> (samples, outputs, d / stride, h / stride, w / stride)."""
        return self.relu(self.instancenorm(self.conv(x)))


class Down(nn.Module):
    """Two convolutions, the first of which has the stride."""

    def __init__(self, inputs: int, outputs: int, stride: int = 2) -> None:
        super().__init__()
        self.block_0 = Convolution(inputs, outputs, stride)
        self.block_1 = Convolution(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """See `Convolution`."""
        return self.block_1(self.block_0(x))


class Up(nn.Module):
    """Doubles the sides, appends the skip, and convolves twice."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.deconv = nn.ConvTranspose3d(inputs, outputs, 2, stride=2)
        self.block_0 = Convolution(2 * outputs, outputs)
        self.block_1 = Convolution(outputs, outputs)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """(samples, inputs, d, h, w) and the skip (samples, outputs, 2d, 2h, 2w) -> the skip's shape."""
        return self.block_1(self.block_0(torch.cat([self.deconv(x), skip], dim=1)))


class UNet3D(nn.Module):
    """Names follow the rules' tensor names, so that `tensor_names` is a translation of separators alone.

    Start weights are torch's defaults: convolutions uniform in +-1/sqrt(fan-in), biases too, norms 1 and 0.
    """

    def __init__(self, shape: Model) -> None:
        super().__init__()
        widths = shape.channels
        self.input = Down(1, widths[0], stride=1)
        self.down = nn.ModuleList([Down(fine, coarse) for fine, coarse in pairwise(widths)])
        self.up = nn.ModuleList([Up(coarse, fine) for coarse, fine in pairwise(reversed(widths))])
        self.output_conv = nn.Conv3d(widths[0], shape.num_classes, 1)

    def forward(self, volumes: Tensor) -> Tensor:
        """(samples, 1, d, h, w) -> (samples, num_classes, d, h, w) logits; sides divisible by 2^downs."""
        x = self.input(volumes)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(x)
        for up in self.up:
            x = up(x, skips.pop())
        return self.output_conv(x)


def tensor_names(model: nn.Module) -> list[str]:
    """Layers with parameters as the rules name them: down.0.block_1.conv is down0_block_1_conv. The full
    model has the 50 of the round 1.1.0."""
    layers = [
        name for name, layer in model.named_modules() if isinstance(getattr(layer, "weight", None), Tensor)
    ]
    return [_tensor_name(layer) for layer in layers]


def _tensor_name(layer: str) -> str:
    where, _, rest = layer.partition(".")
    if where == "input":
        where = "input_"
    return where + rest.replace(".", "_")
