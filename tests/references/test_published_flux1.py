"""flux1 beside the code of its reference, torchtitan's: network, start weights, latents, loss, gradients and rates."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests import needs
from tests.references.configs import composed
from tests.references.published_code import distributions_agree, export, importing
from tests.references.test_flux1_model import SHAPE, batch
from train_bench.references.flux1 import data
from train_bench.references.flux1.model import Flux
from train_bench.references.flux1.recipe import schedule_of
from train_bench.references.flux1.task import between

TITAN = "9603aa83f0e0c69b5d66f9fab61b1f28e9013a2f"
"""pytorch/torchtitan as the submodule text_to_image/torchtitan of the training repository has it."""

FLUX = "torchtitan.experiments.flux"
FILES = (
    "model/layers.py",
    "model/math.py",
    "model/model.py",
    "model/autoencoder_utils.py",
    "utils.py",
    "loss.py",
)
ABSENT = (
    *("torchtitan.components.tokenizer", "torchtitan.config_manager", "torchtitan.tools.logging"),
    *(f"{FLUX}.model.autoencoder", f"{FLUX}.model.hf_embedder", "torchtitan.protocols.train_spec"),
    *("torchtitan.components.optimizer",),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    needs.clones("torchtitan"),
]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of the reference by name."""
    folder = tmp_path_factory.mktemp("published")
    paths = [
        *(f"torchtitan/experiments/flux/{name}" for name in FILES),
        "torchtitan/components/lr_scheduler.py",
    ]
    for path in paths:
        export("torchtitan", TITAN, path, folder)
    with importing(folder, *ABSENT) as load:
        spec: Any = sys.modules["torchtitan.protocols.train_spec"]
        spec.BaseModelArgs, spec.ModelProtocol = type("Arguments", (), {}), type("Protocol", (), {})
        names = ("model.model", "model.autoencoder_utils", "utils", "loss")
        found = {name.rpartition(".")[2]: load(f"{FLUX}.{name}") for name in names}
        yield SimpleNamespace(**found, rates=load("torchtitan.components.lr_scheduler"))


def theirs(published: Any, shape: Any = SHAPE) -> torch.nn.Module:
    numbers = shape.channels * shape.patch**2
    arguments = published.model.FluxModelArgs(
        in_channels=numbers,
        out_channels=numbers,
        vec_in_dim=shape.pooled_width,
        context_in_dim=shape.text_width,
        hidden_size=shape.width,
        mlp_ratio=float(shape.mlp_ratio),
        num_heads=shape.heads,
        depth=shape.double_blocks,
        depth_single_blocks=shape.single_blocks,
        axes_dim=tuple(shape.axes),
    )
    made: torch.nn.Module = published.model.FluxModel(arguments)
    return made


WIDE = replace(SHAPE, time_width=256)
"""The reference's width of the time's embedding is no argument."""


def predicted(published: Any, network: torch.nn.Module, given: dict[str, Tensor]) -> Tensor:
    """The velocity as `train_step` of the reference computes it."""
    cut, side = published.utils, WIDE.latent_size
    seen = between(given["latents"], given["noise"], given["times"])
    samples = len(seen)
    places = cut.create_position_encoding_for_latents(samples, side, side, 3)
    tokens = network(
        img=cut.pack_latents(seen),
        img_ids=places.to(seen),
        txt=given["text"],
        txt_ids=torch.zeros(samples, WIDE.text_length, 3).to(seen),
        timesteps=given["times"],
        y=given["pooled"],
    )
    found: Tensor = cut.unpack_latents(tokens, side, side)
    return found


def test_the_velocity_the_loss_and_the_gradients_are_those_of_the_reference(published: Any) -> None:
    torch.manual_seed(0)
    ours = Flux(WIDE)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    other = theirs(published)
    other.load_state_dict(ours.state_dict())
    given = {name: one.float() for name, one in batch().items()}
    target = given["noise"] - given["latents"]
    seen = between(given["latents"], given["noise"], given["times"])
    velocity = ours(seen, given["times"], given["text"], given["pooled"])
    expected = predicted(published, other, given)
    torch.testing.assert_close(velocity, expected, rtol=1e-4, atol=1e-4)
    torch.nn.functional.mse_loss(velocity, target).backward()
    published.loss.mse_loss(expected, target).backward()
    for (name, one), two in zip(ours.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-3, atol=1e-4, msg=name)


def test_weights_start_from_the_same_distributions(published: Any) -> None:
    shape = replace(WIDE, width=96, heads=4, axes=[8, 8, 8])
    torch.manual_seed(1)
    ours, other = Flux(shape), theirs(published, shape)
    other.init_weights()  # type: ignore[operator]
    for (name, one), (their_name, two) in zip(ours.named_parameters(), other.named_parameters(), strict=True):
        assert (name, one.shape) == (their_name, two.shape)
        if float(two.detach().std()) == 0:
            assert torch.equal(one, two), name
        else:
            assert distributions_agree(
                (one / two.std()).flatten().tolist()[:5000], (two / two.std()).flatten().tolist()[:5000]
            ), name


def test_a_latent_is_drawn_as_the_reference_draws_it(published: Any) -> None:
    torch.manual_seed(0)
    mean, logvar = torch.tensor([-1.0, 0.3, 2.0]), torch.tensor([-3.0, 0.0, 1.0])
    make: Callable[..., Tensor] = published.autoencoder_utils.generate_unscaled_latent_from_mean_logvar
    drawn = make(mean.expand(4000, 3), logvar.expand(4000, 3))
    bits = [(one.numpy().view(np.uint32) >> 16).astype(np.uint16) for one in (mean, logvar)]
    config = composed("flux1")
    samples = data.BatchSet(config=config, stored=SimpleNamespace(), empty=(bits[0], bits[0]))  # type: ignore[arg-type]
    normals = np.random.default_rng(0).standard_normal((4000, 2, 3), dtype=np.float32)
    ours, _ = samples._drawn(*(np.tile(one, (4000, 1)) for one in bits), normals)
    rounded = [data._numbers(one) for one in bits]
    scaled = config.data.scale * (drawn.numpy() - config.data.shift)
    for place in range(3):
        assert rounded[0][place] == pytest.approx(float(mean[place]), rel=0.01)
        assert distributions_agree(
            ((ours[:, place] - ours[:, place].mean()) / ours.std()).tolist(),
            ((scaled[:, place] - scaled[:, place].mean()) / scaled.std()).tolist(),
        )
        assert ours[:, place].mean() == pytest.approx(scaled[:, place].mean(), abs=0.03)


@pytest.mark.parametrize("warmup", [0, 1, 100, 1600])
def test_rates_are_those_of_the_reference(published: Any, warmup: int) -> None:
    made = SimpleNamespace(
        training=SimpleNamespace(steps=30_000),
        lr_scheduler=SimpleNamespace(warmup_steps=warmup, decay_ratio=0.0, decay_type="linear", lr_min=0.0),
    )
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2e-4)
    schedule = published.rates.build_lr_schedulers([optimizer], made)
    config = composed("flux1", f"hyperparameters.opt_learning_rate_warmup_steps={warmup}")
    ours, expected = schedule_of(config), []
    for _ in range(1700):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert [ours(step) for step in range(1700)] == pytest.approx(expected)


def test_the_reference_embeds_times_in_float32_and_at_256_numbers(published: Any) -> None:
    """Of which the tests above make use."""
    assert "timestep_embedding(timesteps, 256)" in inspect.getsource(published.model.FluxModel.forward)
