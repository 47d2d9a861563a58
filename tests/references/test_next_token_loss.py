"""Cross entropy in pieces against the undivided one: values, gradients, and the largest tensor on the way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from train_bench.references.parts.decoder import loss
from train_bench.references.parts.decoder.loss import NO_TARGET, next_token_nats

ROWS, WIDTH, SHAPE = 50, 16, (3, 7)


def batch(seed: int = 0) -> tuple[nn.Linear, Tensor, Tensor]:
    """Output layer, hidden states and targets, of which the first and some others are none."""
    torch.manual_seed(seed)
    head, hidden = nn.Linear(WIDTH, ROWS, bias=False), torch.randn(*SHAPE, WIDTH, requires_grad=True)
    targets = torch.randint(ROWS, SHAPE)
    targets[0, 0] = targets[2, 3:] = NO_TARGET
    return head, hidden, targets


def undivided(head: nn.Module, hidden: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    logits = head(hidden).float().flatten(0, 1)
    return functional.cross_entropy(logits, targets.flatten(), ignore_index=NO_TARGET, reduction=reduction)


@pytest.fixture(params=[1, 4, 21], ids="pieces of {} positions".format)
def positions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Positions of a piece; 21 are all."""
    monkeypatch.setattr(loss, "LOGITS", request.param * ROWS + 3)
    return int(request.param)


@pytest.mark.usefixtures("positions")
def test_mean_and_gradients_are_those_of_the_undivided_loss() -> None:
    head, hidden, targets = batch()
    found = []
    for nats in (undivided(head, hidden, targets), next_token_nats(head, hidden, targets, mean=True)):
        found.append([nats, *torch.autograd.grad(nats * 0.7, [hidden, head.weight])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("positions")
def test_a_frozen_output_layer_gets_no_gradient() -> None:
    head, hidden, targets = batch(1)
    head.requires_grad_(False)
    next_token_nats(head, hidden, targets, mean=True).backward()
    assert head.weight.grad is None
    expected = torch.autograd.grad(undivided(head, hidden, targets), [hidden])[0]
    torch.testing.assert_close(hidden.grad, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("positions")
def test_nats_of_each_position_are_those_of_the_undivided_loss() -> None:
    head, hidden, targets = batch(2)
    with torch.no_grad():
        found = next_token_nats(head, hidden, targets, mean=False)
    assert found.shape == SHAPE
    assert not found[targets == NO_TARGET].any()
    torch.testing.assert_close(found.flatten(), undivided(head, hidden, targets, "none").detach())


def test_in_16_bits_gradients_of_pieces_are_no_worse_than_undivided_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of many pieces are added up in float32."""
    monkeypatch.setattr(loss, "LOGITS", ROWS)
    torch.manual_seed(3)
    head, hidden = nn.Linear(WIDTH, ROWS, bias=False), torch.randn(64, 64, WIDTH)
    targets = torch.randint(4, (64, 64))
    exact = torch.autograd.grad(undivided(head, hidden, targets), [head.weight])[0]

    def error(measure: Any) -> float:
        with torch.autocast("cpu", torch.bfloat16):
            nats = measure()
        return float((torch.autograd.grad(nats, [head.weight])[0] - exact).norm() / exact.norm())

    hidden.requires_grad_()
    whole = error(lambda: undivided(head, hidden, targets))
    assert error(lambda: next_token_nats(head, hidden, targets, mean=True)) < 1.5 * whole


class Largest(TorchDispatchMode):
    """The largest number of elements of a result."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [one.numel() for one in tree_leaves(result) if isinstance(one, Tensor)]
        self.elements = max([self.elements, *sizes])
        return result


@pytest.mark.parametrize("mean", [True, False])
def test_no_tensor_has_the_logits_of_all_positions(mean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "LOGITS", 4 * ROWS)
    head, hidden, targets = batch(4)
    with Largest() as largest, torch.set_grad_enabled(mean):
        nats = next_token_nats(head, hidden, targets, mean=mean)
        if mean:
            nats.backward()
    assert largest.elements == head.weight.numel()
