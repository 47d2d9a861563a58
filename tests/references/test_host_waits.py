"""A step waits for the device nowhere: the host queues steps ahead of it. Counted on a pretended device, whose own
count is tried first; `bench/host_waits.py` prints the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.references.pretended_device import DEVICE, on_device, pin, pretended
from tests.references.step_waits import OPTIMIZERS, of_fp16, of_reference
from train_bench.plan import discover

WAITING = {
    "maskrcnn": "lengths that depend on values: of what suppression keeps, for each level of an image; of all images "
    "together, of the best proposals, of what is drawn of anchors and of regions, and of the regions of a level, twice",
}
"""References whose step waits, and why."""

SKIPPED_ON_THE_DEVICE = {"SGD, fused", "Adam, fused", "AdamW, fused"}
"""Optimizers that take an overflow of fp16 from the device; for others the scaler waits for it once."""

Expression = Callable[[torch.Tensor], Any]

WAITS: dict[str, Expression] = {
    "item": lambda x: x[0].item(),
    "float": lambda x: float(x[0]),
    "bool": lambda x: bool(x.sum() > 0),
    "comparison of all": lambda x: torch.equal(x, x),
    "list": lambda x: x.tolist(),
    "array": lambda x: x.numpy(),
    "host": lambda x: x.cpu(),
    "named host": lambda x: x.to("cpu"),
    "blocking copy": lambda x: pin(torch.ones(2)).to(x.device),
    "pageable memory": lambda x: torch.ones(2).to(x.device, non_blocking=True),
    "values of the host": lambda x: torch.tensor([1.0], device=x.device),
    "new values of the host": lambda x: x.new_tensor([1.0]),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "mask": lambda x: x[x > 0],
    "values by a mask": lambda x: x.__setitem__(x > 0, x[:2].sum()),
    "indices of the host": lambda x: x[[0, 1]],
    "tensor of indices of the host": lambda x: x[torch.tensor([0, 1])],
    "unique": lambda x: x.unique(),
    "repetitions": lambda x: x.repeat_interleave(x.long()),
    "copy into": lambda x: x.copy_(torch.ones(3)),
    "of a copy on the device": lambda x: x.detach().clone().view(3, 1)[0].item(),
}

NO_WAITS: dict[str, Expression] = {
    "computation": lambda x: (x * 2 + 1).softmax(0).sum(),
    "fill by a mask": lambda x: x.masked_fill(x > 0, 0.0),
    "a number by a mask": lambda x: x.__setitem__(x > 0, 0.0),
    "where of three": lambda x: torch.where(x > 0, x, 0.0),
    "a copy from pinned memory": lambda x: pin(torch.ones(2)).to(x.device, non_blocking=True),
    "a copy to the host behind": lambda x: x.to("cpu", non_blocking=True),
    "another type": lambda x: x.to(torch.float64),
    "the same device": lambda x: x.to(x.device),
    "indices of the device": lambda x: x[torch.arange(2, device=x.device)],
    "slices": lambda x: x[1:, None],
    "repetitions of a known sum": lambda x: x.repeat_interleave(x.long(), output_size=3),
    "values of the host's own": lambda x: [torch.tensor(2).item(), torch.ones(2).nonzero().tolist()],
    "clipping": lambda x: torch.nn.utils.clip_grads_with_norm_([_with_gradient(x)], 1.0, x.norm()),
}


def _with_gradient(x: torch.Tensor) -> torch.Tensor:
    weight = x.detach().clone().requires_grad_()
    weight.grad = x
    return weight


@pytest.mark.parametrize("name", [*WAITS, *NO_WAITS])
def test_what_makes_a_gpu_s_host_wait_is_counted_and_nothing_else(name: str) -> None:
    with pretended() as found:
        x = torch.ones(3).to(DEVICE)
        found.clear()
        (WAITS | NO_WAITS)[name](x)
    assert (found.waits.total() > 0) is (name in WAITS), found.waits


def test_results_are_on_the_device_of_their_inputs_and_a_copy_is_on_the_host() -> None:
    with pretended():
        x = torch.ones(3).to(DEVICE)
        there = (x + 1, torch.zeros_like(x), x.new_zeros(2), torch.ones(2, device=DEVICE), x[1:])
        here = (torch.ones(2), x.cpu(), x.to("cpu", non_blocking=True), torch.tensor([1]) * 2)
    assert all(map(on_device, there)) and not any(map(on_device, here))


def test_waits_of_a_backward_pass_count() -> None:
    with pretended() as found:
        x = torch.ones(3, requires_grad=True).to(DEVICE)
        loss = x[x > 0].sum()
        found.clear()
        loss.backward()
    assert found.waits.total() == 1


@pytest.mark.parametrize("name", discover.references())
def test_no_step_of_a_reference_waits_but_for_those_with_a_reason(name: str) -> None:
    found = of_reference(name)
    assert found.launches.total() > 50
    assert (found.waits.total() > 0) is (name in WAITING), found.waits


@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_in_fp16_waits_for_its_overflow_at_most(name: str, clip_norm: float | None) -> None:
    found = of_fp16(name, clip_norm)
    assert found.waits.total() == (name not in SKIPPED_ON_THE_DEVICE), found.waits
