"""Holding a part of torchvision's detectors against the part of a reference that has its place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

ROUNDING = 1e-6
"""Of the largest value: what is computed in double precision and may be given in single precision."""


def with_the_weights_of(theirs: nn.Module, *ours: nn.Module) -> None:
    """Both have their tensors in the same order; a shape that differs is refused."""
    given = [tensor for part in ours for tensor in part.state_dict().values()]
    for (name, tensor), value in zip(theirs.state_dict().items(), given, strict=True):
        assert tensor.shape == value.shape, name
        tensor.copy_(value)


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, as a share of their largest value."""
    assert ours.shape == theirs.shape
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).abs().max() / theirs.abs().max())


def assert_agree(found: Any, expected: Any, ours: nn.Module, theirs: nn.Module) -> None:
    """Outputs, and the gradients of all weights of the two that gave them."""
    assert max(apart(one, other) for one, other in zip(found, expected, strict=True)) < ROUNDING
    weights = [list(model.parameters()) for model in (ours, theirs)]
    assert gradients_apart(found, expected, *weights) < ROUNDING


def gradients_apart(ours: Any, theirs: Any, our_weights: list[Tensor], their_weights: list[Tensor]) -> float:
    """The same of the gradients of all weights, the outputs being pulled in the same drawn directions."""
    torch.manual_seed(1)
    pulls = [torch.randn_like(output, dtype=torch.float64) for output in theirs]
    both = (ours, our_weights), (theirs, their_weights)
    found, expected = (
        torch.autograd.grad(
            sum((output * pull).sum() for output, pull in zip(outputs, pulls, strict=True)), weights
        )
        for outputs, weights in both
    )
    return max(apart(one, other) for one, other in zip(found, expected, strict=True))
