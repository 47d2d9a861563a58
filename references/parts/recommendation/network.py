"""Building blocks of click prediction networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


def mlp(sizes: Sequence[int], linear: Callable[[int, int], nn.Linear] = nn.Linear) -> nn.Sequential:
    """Layers of so many inputs and outputs, with a ReLU after each."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def logits_of(high: Tensor, last: nn.Linear) -> Tensor:
    """float32 (b,) from (b, inputs of the last layer). It is computed in fp32 whatever the numerics, because logits of
    16 bits would be tied in the AUC."""
    with torch.autocast(high.device.type, enabled=False):
        logits = functional.linear(high.float(), last.weight, last.bias)
    return logits.squeeze(1)
