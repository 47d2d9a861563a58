"""The two-headed residual network of AlphaGo Zero (Silver et al., 2017), at any size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train_bench.references.minigo.config import Model
from train_bench.references.minigo.game import PLANES

EPSILON = 1e-5
FORGOTTEN = 0.05
"""Share of a batch in the running statistics; the reference keeps 0.95 of them."""


class Convolution(nn.Sequential):
    """Convolution without bias and batch norm, both named as their layers in the rules."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, affine: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=EPSILON, momentum=FORGOTTEN, affine=affine)


class Residual(nn.Module):
    """Two convolutions around which the input is carried."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Convolution(channels, channels, 3)
        self.second = Convolution(channels, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(positions, channels, side, side), as it comes."""
        return torch.relu(x + self.second(torch.relu(self.first(x))))


class Network(nn.Module):
    """Policy and value of positions. 736,671 parameters in the full benchmark.

    Kernels start Glorot-uniform, biases 0, batch norms as the identity.
    """

    def __init__(self, shape: Model) -> None:
        super().__init__()
        points = shape.board_size**2
        self.stem = Convolution(PLANES, shape.channels, 3)
        self.blocks = nn.ModuleList(Residual(shape.channels) for _ in range(shape.blocks))
        self.policy = Convolution(shape.channels, 2, 1, affine=False)
        self.policy_out = nn.Linear(2 * points, points + 1)
        self.value = Convolution(shape.channels, 1, 1, affine=False)
        self.value_inner = nn.Linear(points, shape.value_width)
        self.value_out = nn.Linear(shape.value_width, 1)
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(layer.weight)
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.bias)

    def forward(self, planes: Tensor) -> tuple[Tensor, Tensor]:
        """(positions, 13, side, side), of any type -> logits (positions, points + 1), the last one a pass's, and
        values (positions,) between -1 and 1 from Black's side."""
        x = torch.relu(self.stem(planes.to(self.policy_out.weight.dtype)))
        for block in self.blocks:
            x = block(x)
        logits = self.policy_out(torch.relu(self.policy(x)).flatten(1))
        inner = torch.relu(self.value_inner(torch.relu(self.value(x)).flatten(1)))
        return logits, torch.tanh(self.value_out(inner)).squeeze(1)


def layers(model: Network) -> dict[str, nn.Module]:
    """All layers with weights by the names of the rules: in the order in which the reference makes them, numbered
    per kind from the second one on."""
    convolutions = [model.stem]
    for block in model.blocks:
        assert isinstance(block, Residual)
        convolutions += [block.first, block.second]
    convolutions += [model.policy, model.value]
    dense = [model.policy_out, model.value_inner, model.value_out]
    named: dict[str, nn.Module] = {}
    for number, pair in enumerate(convolutions):
        named[_numbered("conv2d", number)] = pair.conv
        named[_numbered("batch_normalization", number)] = pair.norm
    named |= {_numbered("dense", number): layer for number, layer in enumerate(dense)}
    return named


def _numbered(kind: str, number: int) -> str:
    return f"{kind}_{number}" if number else kind


def tensor_names(model: Network) -> list[str]:
    """Initialised tensors by their names in the rules: 48 for the full model."""
    names = []
    for name, layer in layers(model).items():
        if isinstance(layer, nn.BatchNorm2d):
            names += [f"{name}/gamma", f"{name}/beta"] if layer.affine else []
        else:
            names.append(f"{name}/kernel")
        if isinstance(layer, nn.Linear):
            names.append(f"{name}/bias")
    return [*names, "global_step"]
