"""Phases of a step, as a dry run counts them."""

from __future__ import annotations

import torch

from train_bench.dry_run.watch import Watch


def test_gradients_that_a_loss_makes_in_the_forward_pass_are_counted_as_backward() -> None:
    weight = torch.ones(4, 3, requires_grad=True)
    watch = Watch()
    with watch, watch.phase("forward"):
        torch.autograd.grad((torch.ones(2, 4) @ weight).sum(), weight)
    product = 2 * 2 * 4 * 3
    assert {phase: flop for (phase, _), flop in watch.flop.items()} == {
        "forward": product,
        "backward": product,
    }
