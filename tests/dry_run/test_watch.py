"""Phases of a step, as a dry run counts them."""

from __future__ import annotations

import torch

from train_bench.dry_run.gathering import Gathering
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


def test_layers_that_share_a_weight_are_both_given_up_when_its_gradient_is_there() -> None:
    model = torch.nn.Module()
    layers = [torch.nn.Linear(4, 4) for _ in range(2)]
    layers[1].weight = layers[0].weight
    model.layers = torch.nn.ModuleList(layers)
    held: list[int] = []
    gathering = Gathering(model, held.append, cast=False, reduces_cast=False, in_shards=True)
    gathering.begin()
    assert sum(held) == 4 * (16 + 4 + 4), "the weight once"
    for weight in (layers[1].bias, layers[0].bias, layers[0].weight):
        gathering.gradient(weight)
    assert sum(held) == 4 * (16 + 4), "what was sent last"
