"""Triton's kernels against the eager computation: the transducer's lattice and loss, and the updates of LAMB and LARS.

By Triton's interpreter in a process of its own, started with TRITON_INTERPRET=1, which Triton reads when it is
imported, or on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from train_bench.references.parts import lamb, lars, layerwise_kernels, optimizers, transducer_loss
from train_bench.references.parts.transducer_kernels import walk
from train_bench.references.parts.transducer_loss import Lattice, lattice

BLANK = 4


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Utterances of unequal lengths: the longest of both, no label, one frame, more labels than frames, one NaN."""
    torch.manual_seed(seed)
    frames, counts = torch.tensor([6, 4, 1, 2, 5]), torch.tensor([4, 0, 2, 4, 1])
    logits = torch.randn(5, 6, 5, BLANK + 1) * 4
    return logits, torch.randint(BLANK, (5, 4)), frames, counts


def lattices_agree(blank: torch.Tensor, label: torch.Tensor, *counts: torch.Tensor) -> None:
    for found, expected in zip(walk(blank, label, *counts), lattice(blank, label, *counts), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15, equal_nan=True)


def losses_agree(seed: int) -> None:
    """Value and gradient of the whole loss, with the one lattice and the other."""
    found = []
    for way in (lattice, lambda *given: Lattice(*walk(*given))):
        logits, labels, *counts = batch(seed)
        logits.requires_grad_()
        transducer_loss.lattice = way
        losses = transducer_loss.transducer_loss(logits, labels, *counts, blank=BLANK)
        (losses * torch.tensor([1.0, -0.5, 2.0, 0.25, 3.0])).sum().backward()
        found.append((losses.detach(), logits.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


Make = Callable[[list[dict[str, Any]]], optimizers.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "LAMB": lambda groups: lamb.LAMB(groups, lr=0.0, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01),
    "LARS": lambda groups: lars.LARS(groups, lr=0.0, momentum=0.9, weight_decay=0.02, epsilon=0.5),
}
LAUNCHES = {"LAMB": 3 + 2, "LARS": 3 + 1}
"""Kernels of a step of a group with layer adaptation and of one without, of any number of tensors."""


def weights_of(device: str) -> list[torch.nn.Parameter]:
    """Of one block and of many, of zeros, of a transposed gradient, in channels_last, without a gradient."""
    torch.manual_seed(5)
    starts = [torch.randn(size) for size in ((5, 3), (400,), (1,), (3, 4), (4, 3, 2, 2), (6,), (7,), (30,))]
    starts[5].zero_()
    starts[4] = starts[4].contiguous(memory_format=torch.channels_last)
    return [torch.nn.Parameter(start.to(device)) for start in starts]


def updates_agree(name: str, device: str) -> None:
    """Weights and state after four steps by kernels and by foreach operations, while the rate changes."""
    found, kept = [], optimizers.on_gpu
    optimizers.triton_builds = lambda: True
    for by_kernels in (True, False):
        optimizers.on_gpu = lambda weights, by_kernels=by_kernels: by_kernels
        weights = weights_of(device)
        groups = [{"params": weights[:6]}, {"params": weights[6:], "layer_adaptation": False}]
        optimizer = OPTIMIZERS[name](groups)
        for lr in (0.0, 0.5, 0.2, 0.01):
            for group in optimizer.param_groups:
                group["lr"] = lr
            for weight in weights[:-1]:
                weight.grad = torch.randn(weight.shape).to(device)
            weights[2].grad.zero_()
            weights[3].grad = torch.randn(4, 3).to(device).t()
            optimizer.step()
        found.append([*weights, *(value for each in weights for value in optimizer.state[each].values())])
    optimizers.on_gpu = kept
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def launches_of(update: Callable[[], None]) -> int:
    """Kernels that an update starts in the interpreter."""
    from triton.runtime.interpreter import GridExecutor

    counted, start = [], GridExecutor.__call__
    GridExecutor.__call__ = lambda *given, **named: (counted.append(1), start(*given, **named))[1]
    update()
    GridExecutor.__call__ = start
    return len(counted)


if __name__ == "__main__":
    layerwise_kernels.BLOCK, layerwise_kernels.SUMS = 16, 8  # so that small tensors have many of both
    for optimizer in OPTIMIZERS:
        launches = launches_of(lambda name=optimizer: updates_agree(name, "cpu"))
        assert launches == 4 * LAUNCHES[optimizer], (optimizer, launches)
    logits, labels, frames, counts = batch(0)
    both = logits.log_softmax(dim=-1)[..., :2].unbind(-1)
    lattices_agree(*both, frames, counts)
    lattices_agree(*(part.double() for part in both), frames, counts)
    never = both[0].clone()
    never[0, 2, 1], never[1, 0, 0], never[4, 1, 0] = float("-inf"), float("nan"), -200.0
    lattices_agree(never, both[1], frames, counts)
    losses_agree(1)
