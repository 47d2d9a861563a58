"""LAMB against its equation, written once more in numpy, one tensor and one step at a time."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from train_bench.references.parts import lamb
from train_bench.references.parts.lamb import LAMB


class PlainLamb:
    """Algorithm 2 of the paper for one tensor in double precision."""

    def __init__(
        self, weight: np.ndarray, *, betas: tuple[float, float], decay: float, adapted: bool
    ) -> None:
        self.w = weight.astype(np.float64)
        self.m, self.v = np.zeros_like(self.w), np.zeros_like(self.w)
        self.betas, self.decay, self.adapted, self.t = betas, decay, adapted, 0

    def step(self, gradient: np.ndarray, lr: float) -> None:
        one, two = self.betas
        self.t += 1
        self.m = one * self.m + (1 - one) * gradient
        self.v = two * self.v + (1 - two) * gradient**2
        m_hat, v_hat = self.m / (1 - one**self.t), self.v / (1 - two**self.t)
        u = m_hat / (np.sqrt(v_hat) + 1e-6) + self.decay * self.w
        w_norm, u_norm = math.sqrt((self.w**2).sum()), math.sqrt((u**2).sum())
        ratio = w_norm / u_norm if self.adapted and w_norm > 0 and u_norm > 0 else 1.0
        self.w = self.w - lr * ratio * u


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.66, 0.996), (0.88, 0.88)])
def test_lamb_follows_its_equation_while_the_rate_changes(betas: tuple[float, float]) -> None:
    """An adapted tensor, one of zeros, one without gradient norm, and one without decay and adaptation."""
    rng = np.random.default_rng(5)
    starts = [rng.normal(size=(5, 3)), np.zeros(4), rng.normal(size=7), rng.normal(size=6)]
    plain = [
        PlainLamb(start, betas=betas, decay=0.0 if index == 3 else 0.01, adapted=index != 3)
        for index, start in enumerate(starts)
    ]
    weights = [torch.nn.Parameter(torch.from_numpy(start).float()) for start in starts]
    optimizer = LAMB(
        [{"params": weights[:3]}, {"params": weights[3:], "weight_decay": 0.0, "layer_adaptation": False}],
        lr=0.0, betas=betas, epsilon=1e-6, weight_decay=0.01,
    )  # fmt: skip
    for lr in (0.0, 0.1, 0.3, 0.02):
        for group in optimizer.param_groups:
            group["lr"] = lr
        for index, weight in enumerate(weights):
            gradient = np.zeros(7) if index == 2 else rng.normal(size=starts[index].shape)
            weight.grad = torch.from_numpy(gradient).float()
            plain[index].step(gradient, lr)
        optimizer.step()
    for weight, expected in zip(weights, plain, strict=True):
        np.testing.assert_allclose(weight.detach().numpy(), expected.w, rtol=1e-4, atol=1e-5)


def test_a_tensor_of_zeros_with_no_gradient_stays() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    weight.grad = torch.zeros(3)
    LAMB([{"params": [weight]}], lr=1.0, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01).step()
    assert weight.tolist() == [0.0, 0.0, 0.0]


def test_a_tensor_without_gradient_is_left_alone() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    LAMB([{"params": [weight]}], lr=1.0, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01).step()
    assert weight.tolist() == [1.0, 1.0]


def test_the_bias_correction_continues_where_the_state_was_saved() -> None:
    def fresh() -> tuple[torch.nn.Parameter, LAMB]:
        weight = torch.nn.Parameter(torch.arange(1.0, 5.0))
        return weight, LAMB(
            [{"params": [weight]}], lr=0.1, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01
        )

    one, first = fresh()
    for step in range(4):
        one.grad = torch.full((4,), 1.0 + step)
        first.step()
        if step == 1:
            kept, weights = copy.deepcopy(first.state_dict()), one.detach().clone()
    other, second = fresh()
    with torch.no_grad():
        other.copy_(weights)
    second.load_state_dict(kept)
    for step in (2, 3):
        other.grad = torch.full((4,), 1.0 + step)
        second.step()
    assert torch.equal(one, other)


def test_no_closure_is_taken() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(TypeError, match="closure"):
        LAMB([{"params": [weight]}], lr=1.0, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01).step(
            lambda: 0.0
        )


def test_numbers_do_not_depend_on_how_many_tensors_are_updated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for together, pieces in ((1, 4), (7, 3), (1000, 1)):
        monkeypatch.setattr(lamb, "TOGETHER", together)
        torch.manual_seed(1)
        weights = [torch.nn.Parameter(torch.randn(size)) for size in (5, 3, 2, 6)]
        assert len(list(lamb._in_pieces(weights))) == pieces
        optimizer = LAMB([{"params": weights}], lr=0.1, betas=(0.9, 0.99), epsilon=1e-6, weight_decay=0.01)
        for _ in range(2):
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            optimizer.step()
        found.append(torch.cat([weight.detach() for weight in weights]))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
