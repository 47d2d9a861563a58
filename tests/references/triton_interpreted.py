"""The lattice of Triton's kernels against the eager one, forward and gradient, in Triton's interpreter.

A process of its own, started with TRITON_INTERPRET=1, which Triton reads when it is imported."""

from __future__ import annotations

import torch

from train_bench.references.parts import transducer_loss
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


if __name__ == "__main__":
    logits, labels, frames, counts = batch(0)
    both = logits.log_softmax(dim=-1)[..., :2].unbind(-1)
    lattices_agree(*both, frames, counts)
    lattices_agree(*(part.double() for part in both), frames, counts)
    never = both[0].clone()
    never[0, 2, 1], never[1, 0, 0], never[4, 1, 0] = float("-inf"), float("nan"), -200.0
    lattices_agree(never, both[1], frames, counts)
    losses_agree(1)
