"""LARS, layer-wise adaptive rates, as defined by the image classification rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from train_bench.references.parts.optimizers import Optimizer, kernel_rows

ETA = 0.001
"""The trust coefficient; fixed by the rules and not logged."""


class LARS(Optimizer):
    """You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks" (2017), algorithm 1, in
    the form of the MLPerf reference. For a tensor w with gradient g, in a group with
    `layer_adaptation`:

        trust = eta |w| / (|g| + weight_decay |w| + epsilon),  1 where |w| = 0 or |g| = 0
        v := momentum v - lr trust (g + weight_decay w)
        w := w + v

    Without `layer_adaptation` (batch norm and biases): v := momentum v - lr g, w := w + v. The rate is
    inside the momentum buffer, which matters when it changes; no Nesterov. Norms are of whole tensors,
    so parameters may not be flattened or sharded. Nothing here waits for the device. On a GPU the tensors of a group
    take three kernels (`layerwise_kernels.py`); elsewhere each operation goes over all of them.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        epsilon: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "epsilon": epsilon,
            "layer_adaptation": True,
        }
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient. `closure` is not supported."""
        if closure is not None:
            raise TypeError("LARS.step takes no closure.")
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            velocities = [self._velocity(weight) for weight in weights]
            rows = kernel_rows(weights, velocities)
            if rows:
                from train_bench.references.parts import layerwise_kernels  # loads Triton

                names = ("lr", "momentum", "weight_decay", "epsilon", "layer_adaptation")
                layerwise_kernels.lars(rows, eta=ETA, **{name: group[name] for name in names})
                continue
            gradients: list[Tensor] = [weight.grad for weight in weights]
            if group["layer_adaptation"]:
                gradients = _adapted(weights, gradients, group["weight_decay"], group["epsilon"])
            torch._foreach_mul_(velocities, group["momentum"])
            torch._foreach_add_(velocities, gradients, alpha=-group["lr"])
            torch._foreach_add_(weights, velocities)

    def _velocity(self, weight: Tensor) -> Tensor:
        state = self.state[weight]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return state["velocity"]


def _adapted(
    weights: list[Tensor], gradients: list[Tensor], weight_decay: float, epsilon: float
) -> list[Tensor]:
    """trust (g + weight_decay w) for every tensor."""
    weight_norms = torch.stack(torch._foreach_norm(weights))
    gradient_norms = torch.stack(torch._foreach_norm(gradients))
    trust = ETA * weight_norms / (gradient_norms + weight_decay * weight_norms + epsilon)
    trust = torch.where((weight_norms > 0) & (gradient_norms > 0), trust, 1.0)
    decayed = torch._foreach_add(gradients, weights, alpha=weight_decay)
    return list(torch._foreach_mul(decayed, list(trust.unbind())))
