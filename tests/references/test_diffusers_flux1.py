"""flux1 beside the Flux transformer of `diffusers`, which the reference does not call: the same numbers with the same
weights, and what differs."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tests import needs
from tests.references.configs import flux1
from tests.references.diffusers_flux import DiffusersFlux
from train_bench.references.flux1.data import synthetic
from train_bench.references.flux1.model import Flux, to_patches

pytestmark = pytest.mark.slow  # importing diffusers


class Pair(NamedTuple):
    """Both networks with the same weights, none of which is 0, and a batch for them."""

    ours: Flux
    theirs: DiffusersFlux
    batch: tuple[Tensor, ...]

    def velocities(self) -> list[Tensor]:
        """By patch."""
        patch = self.ours.shape.patch
        return [to_patches(self.ours(*self.batch), patch), self.theirs(*self.batch)]


@pytest.fixture
def pair() -> Pair:
    """Narrow ones, with what diffusers cannot change: 256 numbers of the time, and rotations of base 10,000."""
    needs.package("diffusers")
    config = flux1(
        "flux1",
        *("model.width=32", "model.heads=2", "model.axes=[4,6,6]", "model.double_blocks=2"),
        *("model.single_blocks=2", "model.latent_size=8", "model.text_length=5", "model.text_width=12"),
        "model.pooled_width=6",
    )
    ours, theirs = Flux(config.model), DiffusersFlux(config.model)
    made = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=made))
    theirs.take(ours)
    text, pooled, latents, _, times = synthetic(config, 3)
    return Pair(ours, theirs, (latents, times, text, pooled))


def apart(one: Tensor, other: Tensor) -> float:
    """Largest difference over the largest number."""
    return float((one - other).detach().abs().max() / other.detach().abs().max())


def test_velocities_are_those_of_diffusers(pair: Pair) -> None:
    ours, theirs = pair.velocities()
    assert apart(ours, theirs) < 1e-5


def test_gradients_are_those_of_diffusers(pair: Pair) -> None:
    """Of the mean square, with respect to the latents: they go through every layer."""
    found = []
    for number in (0, 1):
        latents = pair.batch[0].clone().requires_grad_()
        velocity = pair._replace(batch=(latents, *pair.batch[1:])).velocities()[number]
        velocity.square().mean().backward()
        assert latents.grad is not None
        found.append(latents.grad)
    assert apart(*found) < 1e-4


def test_its_own_epsilon_of_queries_and_keys_is_another(pair: Pair) -> None:
    with torch.no_grad():
        for name, tensor in pair.ours.named_parameters():
            if ".qkv." in name or ".linear1." in name:
                tensor[: 2 * pair.ours.shape.width].mul_(1e-3)
    pair.theirs.take(pair.ours)
    assert apart(*pair.velocities()) < 1e-5
    for module in pair.theirs.modules():
        if isinstance(module, torch.nn.RMSNorm):
            module.eps = 1e-6
    assert apart(*pair.velocities()) > 1e-4


def test_its_last_layer_has_the_scale_before_the_shift(pair: Pair) -> None:
    linear = pair.theirs.theirs.norm_out.linear
    with torch.no_grad():
        for tensor in (linear.weight, linear.bias):
            tensor.copy_(tensor.roll(pair.ours.shape.width, dims=0))
    assert apart(*pair.velocities()) > 0.1


@pytest.mark.parametrize(
    "name", ["img_in.weight", "double_blocks.1.txt_attn.qkv.bias", "single_blocks.0.linear1.weight"]
)
def test_a_weight_that_is_another_is_noticed(pair: Pair, name: str) -> None:
    with torch.no_grad():
        pair.ours.get_parameter(name).mul_(1.1)
    assert apart(*pair.velocities()) > 1e-4
