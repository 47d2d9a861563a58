"""Cross entropy of next tokens in pieces of positions: output layer, loss and, in training, their gradients piece by
piece, so that the logits of all positions are never held at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

LOGITS = 2**27
"""Logits of a piece at most; 512 MiB in float32."""

NO_TARGET = -100
"""Target of positions without a loss."""


def next_token_nats(head: nn.Linear, hidden: Tensor, targets: Tensor, *, mean: bool) -> Tensor:
    """float32 nats (negative log-likelihoods) of int64 `targets` (samples, length), whose logits are `head` of `hidden`
    (samples, length, width): the mean over positions with a target, (), or of each position, (samples, length), 0
    where there is none. If one piece has all logits, this is torch's cross entropy itself."""
    states, wanted = hidden.flatten(0, 1), targets.flatten()
    size = max(1, LOGITS // head.out_features)
    whole = len(head.weight) == head.out_features  # ZeRO stage 3 has weights in the layer's own call alone
    if len(wanted) <= size or not whole:
        nats = _nats(head, states, wanted, "mean" if mean else "none")
    elif mean:
        nats = _SumInPieces.apply(states, head.weight, head, wanted, size) / (wanted != NO_TARGET).sum()
    else:
        pieces = zip(states.split(size), wanted.split(size), strict=True)
        nats = torch.cat([_nats(head, *piece, "none") for piece in pieces])
    return nats if mean else nats.view_as(targets)


def _nats(head: nn.Module, states: Tensor, wanted: Tensor, reduction: str) -> Tensor:
    logits = head(states).float()
    return functional.cross_entropy(logits, wanted, ignore_index=NO_TARGET, reduction=reduction)


class _SumInPieces(torch.autograd.Function):
    """() sum of the nats. Its gradients are computed with it, and multiplied in the backward pass; the weight's is
    added up in float32 at least, the others keep the scale of logits, which is fit for 16 bits."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, head: nn.Linear, wanted: Tensor, size: int
    ) -> Tensor:
        total, of_states, of_weight = None, [], None
        for piece, targets in zip(states.split(size), wanted.split(size), strict=True):
            piece = piece.detach().requires_grad_()
            sources = [piece, weight] if weight.requires_grad else [piece]
            with torch.enable_grad():
                nats = _nats(head, piece, targets, "sum")
            of_piece, *of_head = torch.autograd.grad(nats, sources)
            of_states.append(of_piece)
            if of_head:
                wide = of_head[0].to(torch.promote_types(weight.dtype, torch.float32))
                of_weight = wide if of_weight is None else of_weight.add_(wide)
            total = nats.detach() if total is None else total + nats.detach()
        ctx.save_for_backward(torch.cat(of_states), of_weight)
        assert total is not None, "there are positions"
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_states, of_weight = ctx.saved_tensors
        of_weight = None if of_weight is None else of_weight.mul_(gradients[0])
        return of_states * gradients[0], of_weight, None, None, None
