"""Quantisation of a trained network: a pure function of its weights, which two calls do alike.

Neither kind needs calibration data: bfloat16 rounds, and the int8 layers find the range of each row of their input when
they get it.
"""

from __future__ import annotations

import copy
import hashlib

import torch
from torch import Tensor, nn

from train_bench.errors import LaunchError

LARGEST_INT8 = 127


class Int8Linear(nn.Module):
    """Linear layer of int8 weights, a scale for each output, on inputs that are rounded to int8, a scale for each row;
    sums are exact, so that a row does not depend on its neighbours. `weight` is for networks that take the weights of a
    layer for arithmetic of their own."""

    rounded: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        rounded, scale = _rounded(linear.weight.detach())
        self.register_buffer("rounded", rounded)
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    @property
    def weight(self) -> Tensor:
        """Weights as floats, rounded."""
        return self.rounded.float() * self.scale

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs) floats to (..., outputs) floats."""
        rows, scale = _rounded(inputs.flatten(0, -2))
        sums = torch._int_mm(rows, self.rounded.t()).float()
        outputs = sums * scale * self.scale.t()
        if self.bias is not None:
            outputs = outputs + self.bias
        shaped: Tensor = outputs.unflatten(0, inputs.shape[:-1])
        return shaped


def _rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """int8 (n, m), and float32 (n, 1): the largest magnitude of each row by 127, 1 for a row of zeros."""
    largest = rows.float().abs().amax(dim=1, keepdim=True)
    scale = torch.where(largest > 0, largest / LARGEST_INT8, 1.0)
    return torch.round(rows.float() / scale).to(torch.int8), scale


def quantise(model: nn.Module, kind: str) -> str:
    """Quantise in place; returns the sha256 of the weights as they are served then. Raises `LaunchError` for a network
    without a linear layer or, for int8, on a GPU, and where a second quantisation gives other weights.

    none          unchanged
    bf16          weights of two or more dimensions are rounded to bfloat16, ties to even
    int8_dynamic  linear layers become `Int8Linear`
    """
    if kind == "none":
        return _digest(model)
    if kind == "int8_dynamic" and any(tensor.is_cuda for tensor in model.parameters()):
        raise LaunchError(
            "quantisation=int8_dynamic is for the CPU, and the network is on a GPU; give device=cpu."
        )
    again = copy.deepcopy(model)
    digests = [_digest(_quantised(one, kind)) for one in (model, again)]
    if digests[0] != digests[1]:
        raise LaunchError(
            f"quantisation={kind} gave {digests[0][:12]}... and {digests[1][:12]}... of the same weights."
        )
    return digests[0]


def _quantised(model: nn.Module, kind: str) -> nn.Module:
    if kind == "bf16":
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.copy_(parameter.bfloat16())
        return model
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    if not found:
        raise LaunchError(
            "The network has no linear layers, so there is nothing for quantisation=int8_dynamic."
        )
    for parent, name, child in found:
        setattr(parent, name, Int8Linear(child))
    return model


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
