"""The transformer of flux1: its size, the same network computed slowly from the facts, start weights, points,
recipe."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.references.configs import composed
from tests.references.slow_flux import POINTS, SlowFlux
from train_bench.errors import RequestError
from train_bench.references.flux1.config import Model
from train_bench.references.flux1.model import (
    Flux,
    from_patches,
    rotations,
    time_embedding,
    to_patches,
)
from train_bench.references.flux1.recipe import optimizer_of, schedule_of
from train_bench.references.flux1.task import between
from train_bench.references.parts.recompute import recompute
from train_bench.rules import ruleset

SHAPE = Model(
    channels=3,
    latent_size=4,
    text_length=3,
    text_width=7,
    pooled_width=5,
    width=24,
    heads=2,
    double_blocks=2,
    single_blocks=2,
    axes=[4, 4, 4],
    time_width=8,
)
"""Every part of the network, and no two sizes of a token alike."""


def network(seed: int = 0, shape: Model = SHAPE) -> Flux:
    torch.manual_seed(seed)
    model = Flux(shape)
    with torch.no_grad():
        for parameter in model.parameters():  # no gate is closed, and attention is not even
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double()


def batch(samples: int = 3, shape: Model = SHAPE) -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(1)
    latent = (samples, shape.channels, shape.latent_size, shape.latent_size)
    text = (samples, shape.text_length, shape.text_width)
    sizes = {"latents": latent, "noise": latent, "text": text, "pooled": (samples, shape.pooled_width)}
    drawn = {name: torch.randn(size, generator=made, dtype=torch.float64) for name, size in sizes.items()}
    return drawn | {"times": torch.tensor([0.03, 0.375, 0.9, 0.6][:samples], dtype=torch.float64)}


def loss_of(model: Flux, given: dict[str, Tensor]) -> Tensor:
    seen = between(given["latents"], given["noise"], given["times"])
    velocity = model(seen, given["times"], given["text"], given["pooled"])
    return functional.mse_loss(velocity, given["noise"] - given["latents"])


def slow(model: Flux, *otherwise: str) -> SlowFlux:
    weights = {name: one.detach().numpy() for name, one in model.named_parameters()}
    return SlowFlux(model.shape, weights, otherwise)


def arrays(given: dict[str, Tensor]) -> dict[str, Any]:
    return {name: one.numpy() for name, one in given.items()}


def test_the_network_has_the_numbers_of_parameters_of_its_configuration() -> None:
    with torch.device("meta"):
        model = Flux(composed("flux1").model)
    assert sum(one.numel() for one in model.parameters()) == 11_891_178_560
    names = {name for name, _ in model.named_parameters()}
    assert len(names) == 12 + 19 * 2 * 12 + 38 * 8 + 4
    assert {
        "double_blocks.18.txt_attn.norm.key_norm.weight",
        "double_blocks.0.img_mlp.2.bias",
        "double_blocks.3.img_mod.lin.weight",
        "single_blocks.37.linear1.weight",
        "single_blocks.0.norm.query_norm.weight",
        "single_blocks.9.modulation.lin.bias",
        "final_layer.adaLN_modulation.1.weight",
        "time_in.in_layer.weight",
        "vector_in.out_layer.bias",
    } < names


def test_start_weights_are_those_of_the_reference() -> None:
    torch.manual_seed(0)
    shape = replace(SHAPE, width=192, heads=4, axes=[16, 16, 16], pooled_width=300, time_width=300)
    for name, parameter in Flux(shape).named_parameters():
        one = parameter.detach()
        if name.endswith("_norm.weight"):
            assert bool((one == 1).all()), name
        elif one.dim() == 1 or "mod" in name or name.startswith("final_layer."):
            assert bool((one == 0).all()), name
        elif name.startswith(("time_in.", "vector_in.")):
            assert float(one.std()) == pytest.approx(0.02, rel=0.05), name
            assert float(one.abs().max()) > 0.06, name
        else:
            bound = math.sqrt(6 / sum(one.shape))
            assert 0.97 * bound < float(one.abs().max()) <= bound, name
            assert float(one.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05), name


def test_a_network_begins_with_the_velocity_0_whatever_it_is_given() -> None:
    given = batch()
    model = Flux(SHAPE).double()
    assert bool((model(given["latents"], given["times"], given["text"], given["pooled"]) == 0).all())


def test_the_velocity_and_the_loss_are_those_of_a_slow_network_made_from_the_facts() -> None:
    model, given = network(), batch()
    with torch.no_grad():
        ours = model(given["latents"], given["times"], given["text"], given["pooled"])
        loss = float(loss_of(model, given))
    other = arrays(given)
    for number in range(3):
        found = slow(model).velocity(
            other["latents"][number], other["times"][number], other["text"][number], other["pooled"][number]
        )
        np.testing.assert_allclose(ours[number].numpy(), found, rtol=1e-10, atol=1e-10)
    assert loss == pytest.approx(slow(model).loss(**other), rel=1e-12)


@pytest.mark.slow
def test_gradients_are_the_slopes_of_the_slow_network() -> None:
    """Of every tensor, along a direction drawn at random."""
    model, given = network(), batch(2)
    loss_of(model, given).backward()
    other, step = arrays(given), 1e-5
    rng = np.random.default_rng(0)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        direction = rng.standard_normal(parameter.shape)
        ends = []
        for sign in (1, -1):
            moved = slow(model)
            moved.weights = {**moved.weights, name: moved.weights[name] + sign * step * direction}
            ends.append(moved.loss(**other))
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float((parameter.grad.numpy() * direction).sum()) == pytest.approx(
            slope, rel=1e-5, abs=1e-7
        ), name


@pytest.mark.parametrize("point", POINTS)
def test_each_point_of_the_facts_is_noticed(point: str) -> None:
    """The slow network with this point otherwise."""
    model, given = network(), batch()
    with torch.no_grad():
        exact = float(loss_of(model, given))
    assert abs(slow(model, point).loss(**arrays(given)) / exact - 1) > 1e-6


def test_patches_are_joined_as_they_were_cut_and_numbered_by_channel_row_and_column() -> None:
    latents = torch.arange(2 * 3 * 4 * 6).view(2, 3, 4, 6)
    tokens = to_patches(latents, 2)
    assert tokens.shape == (2, 6, 12)
    assert tokens[1, 4].tolist() == latents[1, :, 2:4, 2:4].flatten().tolist()
    assert torch.equal(from_patches(tokens, 3, 4, 2), latents)


def test_times_of_the_evaluation_are_embedded_as_steps_of_125() -> None:
    found = time_embedding(torch.arange(8, dtype=torch.float64) / 8, 256)
    angles = (
        125
        * torch.arange(8, dtype=torch.float64)[:, None]
        * 10000.0 ** (-torch.arange(128, dtype=torch.float64) / 128)
    )
    torch.testing.assert_close(found, torch.cat([angles.cos(), angles.sin()], dim=1))


def test_text_is_at_the_place_of_the_first_patch_and_patches_are_at_their_rows_and_columns() -> None:
    cosine, sine = rotations(composed("flux1").model, torch.zeros(1))
    assert cosine.shape == (512, 64)
    assert bool((sine[:257] == 0).all()) and bool((cosine[:257] == 1).all())
    last = sine[-1].double().asin()
    assert bool((sine[:, :8] == 0).all())
    assert float(last[9]) == pytest.approx(math.asin(math.sin(15 * 10000 ** (-2 / 56))), abs=1e-5)
    assert torch.equal(sine[-1, 8:36], sine[-1, 36:])


def test_recomputed_blocks_have_the_same_gradients() -> None:
    plain, again, given = network(), network(), batch()
    recompute([*again.double_blocks, *again.single_blocks])
    for model in (plain, again):
        loss_of(model, given).backward()
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]


POINTS_OF_ROUNDS = [(name, size) for name in ("6.0.0", "6.1.0") for size in (512, 1024, 2048, 4096)]


@pytest.mark.parametrize(("round_name", "size"), POINTS_OF_ROUNDS)
def test_published_points_have_a_configuration_each_with_their_hyperparameters(
    round_name: str, size: int
) -> None:
    path = ruleset.package_folder("rcp_checker") / f"training_{round_name}" / "rcps_flux1.json"
    points = {one["BS"]: one["Hyperparams"] for one in json.loads(path.read_text()).values()}
    assert sorted(points) == [512, 1024, 2048, 4096]
    ours = composed("flux1" if size == 512 else f"flux1_bs{size}").hyperparameters
    assert ours.global_batch_size == size
    assert {key: getattr(ours, key) for key in points[size]} == pytest.approx(points[size])


def test_the_rate_rises_in_equal_steps_and_then_stays() -> None:
    def rates(warmup: int) -> list[float]:
        config = composed(
            "flux1",
            "hyperparameters.opt_base_learning_rate=0.4",
            f"hyperparameters.opt_learning_rate_warmup_steps={warmup}",
        )
        return [schedule_of(config)(step) for step in (0, 1, 2, 3, 4, 5, 10**6)]

    assert rates(4) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4])
    assert rates(0) == [0.4] * 7
    with pytest.raises(RequestError, match="warmup_steps is -1; allowed are 0 or more"):
        rates(-1)


def test_every_parameter_decays() -> None:
    model = network()
    (group,) = optimizer_of(model, composed("flux1").hyperparameters).param_groups
    assert len(group["params"]) == len(list(model.parameters()))
    assert (group["weight_decay"], group["betas"], group["eps"]) == (0.1, (0.9, 0.95), 1e-8)


@pytest.mark.parametrize(
    ("given", "batch_size", "frequency"),
    [
        ("training-5.1.0", 1000, 262144),
        ("training-6.0.0", 1000, 262144),
        ("training-6.1.0", 1000, 263000),
        ("training-6.1.0", 512, 262144),
        ("mini-1.0", 1000, None),
    ],
)
def test_the_evaluation_frequency_is_what_the_rule_file_of_the_round_asks_for(
    given: str, batch_size: int, frequency: int | None
) -> None:
    config = composed("flux1", f"ruleset={given}", f"hyperparameters.global_batch_size={batch_size}")
    assert config.for_ranks(8).hyperparameters.evaluation_frequency == frequency


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"heads": 3},
            r"width 24 over model.heads 3 has to be the sum of model.axes \[4, 4, 4\], which is 12",
        ),
        ({"axes": [6, 6]}, r"model.axes is \[6, 6\]; allowed are three even numbers"),
        ({"axes": [3, 5, 4]}, "three even numbers"),
        ({"latent_size": 5}, "latent_size 5 is not a multiple of model.patch 2"),
        ({"time_width": 7}, "time_width is 7"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        replace(SHAPE, **changes).check()
