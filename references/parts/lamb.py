"""LAMB, layer-wise adaptive moments, as defined by the references of language and speech."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from train_bench.references.parts.optimizers import Optimizer, kernel_rows

TOGETHER = 32 << 20
"""Elements of the tensors that are updated at once. What an update needs meanwhile is twice their size; of all of
BERT-Large it would be 2.7 GB."""


class LAMB(Optimizer):
    """You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (2020),
    algorithm 2, with phi the identity. For a tensor w with gradient g at step t = 1, 2, ...:

        m := beta_1 m + (1 - beta_1) g
        v := beta_2 v + (1 - beta_2) g^2
        u  = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) + weight_decay w
        w := w - lr |w| / |u| u        the ratio is 1 where |w| = 0 or |u| = 0

    The ratio is not clamped, and 1 in groups without `layer_adaptation`. Norms are of whole tensors, so
    parameters may not be flattened or sharded. Nothing here waits for the device. On a GPU the tensors of a group take
    three kernels (`layerwise_kernels.py`), which read what they need twice and keep nothing of its size; elsewhere
    each operation goes over many tensors.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        epsilon: float,
        weight_decay: float,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "epsilon": epsilon,
            "weight_decay": weight_decay,
            "layer_adaptation": True,
            "steps": 0,
        }
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient. `closure` is not supported."""
        if closure is not None:
            raise TypeError("LAMB.step takes no closure.")
        for group in self.param_groups:
            group["steps"] += 1
            moved = [weight for weight in group["params"] if weight.grad is not None]
            if not moved:
                continue
            rows = kernel_rows(moved, *self._moments(moved))
            if rows:
                self._step_by_kernels(rows, group)
                continue
            for weights in _in_pieces(moved):
                updates = self._directions(weights, group)
                if group["layer_adaptation"]:
                    torch._foreach_mul_(updates, _ratios(weights, updates))
                torch._foreach_add_(weights, updates, alpha=-group["lr"])

    def _step_by_kernels(self, rows: list[list[Tensor]], group: dict[str, Any]) -> None:
        from train_bench.references.parts import layerwise_kernels  # loads Triton

        beta_1, beta_2 = group["betas"]
        layerwise_kernels.lamb(
            rows,
            lr=group["lr"],
            betas=group["betas"],
            corrections=(1.0 - beta_1 ** group["steps"], (1.0 - beta_2 ** group["steps"]) ** 0.5),
            epsilon=group["epsilon"],
            weight_decay=group["weight_decay"],
            layer_adaptation=group["layer_adaptation"],
        )

    def _directions(self, weights: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """u of every tensor."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        first, second = self._moments(weights)
        beta_1, beta_2 = group["betas"]
        torch._foreach_lerp_(first, gradients, 1.0 - beta_1)
        torch._foreach_mul_(second, beta_2)
        torch._foreach_addcmul_(second, gradients, gradients, value=1.0 - beta_2)
        divisors = torch._foreach_sqrt(second)
        torch._foreach_div_(divisors, (1.0 - beta_2 ** group["steps"]) ** 0.5)
        torch._foreach_add_(divisors, group["epsilon"])
        updates = torch._foreach_div(first, 1.0 - beta_1 ** group["steps"])
        torch._foreach_div_(updates, divisors)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        return list(updates)

    def _moments(self, weights: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {
                    "first": torch.zeros_like(weight, memory_format=torch.preserve_format),
                    "second": torch.zeros_like(weight, memory_format=torch.preserve_format),
                }
        states = [self.state[weight] for weight in weights]
        return [state["first"] for state in states], [state["second"] for state in states]


def _in_pieces(weights: list[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of `TOGETHER` elements or fewer, or one larger tensor."""
    piece: list[Tensor] = []
    elements = 0
    for weight in weights:
        if piece and elements + weight.numel() > TOGETHER:
            yield piece
            piece, elements = [], 0
        piece.append(weight)
        elements += weight.numel()
    yield piece


def _ratios(weights: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """|w| / |u| of every tensor, on its device."""
    weight_norms = torch.stack(torch._foreach_norm(weights))
    update_norms = torch.stack(torch._foreach_norm(updates))
    usable = (weight_norms > 0) & (update_norms > 0)
    return list(torch.where(usable, weight_norms / update_norms, 1.0).unbind())
