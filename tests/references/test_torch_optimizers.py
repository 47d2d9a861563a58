"""Our optimizers are torch's, number by number, without what torch loads with its own; nor does the sharing of
gradients load it."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from train_bench.references.parts.optimizers import SGD, Adam, AdamW, one_pass

STEPS_WITHOUT_THE_COMPILER = """
import sys
import torch
from train_bench.launchers.parts.light_ddp import LightDDP
from train_bench.references.parts.lamb import LAMB
from train_bench.references.parts.lars import LARS
from train_bench.references.parts.optimizers import SGD, Adam, AdamW
from train_bench.run.rank_state import end_process

def weights():
    return [torch.nn.Parameter(torch.ones(2))]

for optimizer in (
    SGD(weights(), lr=0.1, momentum=0.9),
    Adam(weights(), lr=0.1),
    AdamW(weights(), lr=0.1),
    LARS([{"params": weights()}], lr=0.1, momentum=0.9, weight_decay=0.0),
    LAMB([{"params": weights()}], lr=0.1, betas=(0.9, 0.99), epsilon=1e-6, weight_decay=0.0),
):
    (weight,) = optimizer.param_groups[0]["params"]
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)

torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(2, 1)
LightDDP(model)(torch.ones(1, 2)).sum().backward()
print("torch._dynamo" in sys.modules, "_dynamo" in vars(torch), model.weight.grad.tolist())
end_process()
"""


@pytest.mark.parametrize(
    ("kinds", "options"),
    [
        ((torch.optim.SGD, SGD), {}),
        ((torch.optim.SGD, SGD), {"momentum": 0.9, "weight_decay": 0.01}),
        ((torch.optim.SGD, SGD), {"momentum": 0.9, "nesterov": True, "foreach": True}),
        ((torch.optim.SGD, SGD), {"momentum": 0.9, "foreach": False}),
        ((torch.optim.SGD, SGD), {"momentum": 0.9, "weight_decay": 0.01, "fused": True}),
        ((torch.optim.Adam, Adam), {}),
        (
            (torch.optim.Adam, Adam),
            {"betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.01, "amsgrad": True},
        ),
        ((torch.optim.Adam, Adam), {"foreach": True}),
        ((torch.optim.Adam, Adam), {"fused": True}),
        ((torch.optim.AdamW, AdamW), {}),
        ((torch.optim.AdamW, AdamW), {"betas": (0.8, 0.99), "weight_decay": 0.1, "foreach": True}),
        ((torch.optim.AdamW, AdamW), {"betas": (0.8, 0.99), "weight_decay": 0.1, "fused": True}),
    ],
)
def test_ours_are_those_of_torch_number_by_number(kinds: tuple[Any, Any], options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(5)
    start = [torch.randn(shape, generator=generator) for shape in ((4, 3), (5,))]
    theirs, ours = ([torch.nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    both = zip(kinds, (theirs, ours), strict=True)
    optimizers = [kind([{"params": weights}], lr=0.1, **options) for kind, weights in both]
    seen: list[int] = []
    optimizers[1].register_step_post_hook(lambda *_: seen.append(len(seen)))
    for step in range(4):
        gradients = [torch.randn(tensor.shape, generator=generator) for tensor in start]
        for optimizer, weights in zip(optimizers, (theirs, ours), strict=True):
            optimizer.zero_grad()
            assert all(weight.grad is None for weight in weights)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient.clone()
            optimizer.step()
            if step == 1:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert all(map(torch.equal, ours, theirs))
    states = [optimizer.state_dict() for optimizer in optimizers]
    torch.testing.assert_close(states[1], states[0], rtol=0.0, atol=0.0)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_in_one_kernel_is_that_of_an_operation_at_a_time(nesterov: bool) -> None:
    found = []
    for settings in ({"foreach": True}, {"fused": True}):
        generator = torch.Generator().manual_seed(5)
        weight = torch.nn.Parameter(torch.randn(50, generator=generator))
        optimizer = SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=nesterov, **settings)
        for _ in range(5):
            weight.grad = torch.randn(50, generator=generator)
            optimizer.step()
        found.append(weight.detach())
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-7)


def test_momentum_of_one_kernel_begins_with_zeros_where_the_first_step_overflows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "empty_like", lambda tensor: torch.full_like(tensor, 7.0))  # as memory may be
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = SGD([weight], lr=0.5, momentum=0.9, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for gradient in (math.inf, 1.0):
        weight.grad = scaler.scale(torch.full((2,), gradient))
        scaler.step(optimizer)
        scaler.update()
    assert weight.tolist() == [-0.5, -0.5]


def test_on_gpus_sgd_is_one_kernel() -> None:
    def with_weights(*on_gpu: bool) -> Any:
        weights = [SimpleNamespace(is_cuda=one) for one in on_gpu]
        return SimpleNamespace(parameters=lambda: weights)

    assert one_pass(with_weights(True, True)) == {"fused": True}
    assert one_pass(with_weights(True, False)) == one_pass(torch.nn.Linear(1, 1)) == {"foreach": True}


def test_a_step_leaves_no_gradient_of_its_own_and_evaluates_a_closure() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = SGD([weight], lr=0.5)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = weight.sum()
        value.backward()
        return value

    assert optimizer.step(loss) == 2.0
    assert weight.tolist() == [0.5, 0.5]
    assert weight.is_leaf


@pytest.mark.full
def test_neither_optimizers_nor_the_sharing_of_gradients_load_the_compiler_of_torch() -> None:
    """And nothing stands in its place afterwards."""
    completed = subprocess.run(
        [sys.executable, "-c", STEPS_WITHOUT_THE_COMPILER], capture_output=True, text=True, check=True
    )
    assert completed.stdout.splitlines() == ["False", "False False [[1.0, 1.0]]"]
