"""The mixture of experts: its size, rotations and attention, all experts computed densely, the same network in another
library, and its recipe."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.references.configs import composed, gpt_oss_20b
from tests.references.published_decoder import answers, mixture, same_but_for_rounding, slow_attention
from train_bench.references.gpt_oss_20b.config import Model
from train_bench.references.gpt_oss_20b.model import (
    STEEPNESS,
    Attention,
    Decoder,
    Experts,
    Router,
    attend,
    attend_in_window,
    frequencies,
)
from train_bench.references.parts.decoder import weights
from train_bench.references.parts.decoder.recipe import optimizer_of
from train_bench.references.parts.decoder.rotary import rotations
from train_bench.rules import ruleset


def small(**changes: float) -> Model:
    """Every part of the network, and rotations of all three kinds."""
    shape = {"vocabulary": 40, "layers": 2, "width": 32, "heads": 4, "key_value_heads": 2, "head_size": 8}
    mixed = {"intermediate": 16, "experts": 6, "experts_per_token": 2, "window": 5, "gate_limit": 0.7}
    return Model(**(shape | mixed | {"rope_base": 100.0, "old_context": 512} | changes))  # type: ignore[arg-type]


def network(seed: int = 0) -> Decoder:
    torch.manual_seed(seed)
    model = Decoder(small())
    with torch.no_grad():
        for parameter in model.parameters():  # larger than at the start, so that attention is not even
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def test_the_public_network_has_the_published_numbers_of_parameters_in_all_and_of_a_token() -> None:
    """With its own vocabulary; those that a token meets are counted without the embedding, in which it is looked up."""
    shape = gpt_oss_20b("gpt_oss_20b", "model.vocabulary=201088").model
    with torch.device("meta"):
        model = Decoder(shape)
    total = sum(one.numel() for one in model.parameters())
    idle = 1 - shape.experts_per_token / shape.experts
    experts = sum(one.numel() for layer in model.layers for one in layer.mlp.experts.parameters())
    active = total - experts * idle - model.embed_tokens.weight.numel()
    assert total == 20_914_757_184
    assert round(active / 1e9, 2) == 3.61


@pytest.mark.parametrize("position", [1, 700, 8191])
def test_rotations_follow_the_formula(position: int) -> None:
    """By one number after the other, for the shape of the full scale."""
    shape = gpt_oss_20b("gpt_oss_20b").model
    cosine, _ = rotations(frequencies(shape, torch.zeros(1, dtype=torch.float64)), 8192)
    kinds = set()
    for number in range(32):
        frequency = 150000.0 ** (-2 * number / 64)
        first, last = (
            64 * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(150000)) for turns in (32, 1)
        )
        slowed = min(max((number - first) / (last - first), 0.0), 1.0)
        kinds.add(slowed if slowed in (0.0, 1.0) else "between")
        frequency = (1 - slowed) * frequency + slowed * frequency / 32
        assert float(cosine[position, number]) == pytest.approx(math.cos(position * frequency), abs=1e-9)
    assert kinds == {0.0, 1.0, "between"}


@pytest.mark.parametrize("window", [1, 3, 5, 8, 11, 12, 40, None])
def test_attention_is_what_a_slow_one_computes_in_double(window: int | None) -> None:
    """In windows that divide the length, do not, and are longer."""
    torch.manual_seed(0)
    shape, length = small(), 12
    attention, hidden = (
        Attention(shape, window=window).double(),
        torch.randn(2, length, 32, dtype=torch.float64),
    )
    torch.nn.init.normal_(attention.sinks)
    cosine, sine = rotations(frequencies(shape, hidden), length)
    expected = torch.stack([slow_attention(attention, shape, one, cosine, sine) for one in hidden])
    torch.testing.assert_close(attention(hidden, cosine, sine), expected, rtol=1e-12, atol=1e-12)


def test_a_window_of_the_whole_length_is_no_window_in_its_gradients_either() -> None:
    torch.manual_seed(0)
    parts = [torch.randn(2, 3, 10, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    sinks = torch.randn(3, dtype=torch.float64, requires_grad=True)
    found = []
    for mixed in (attend(*parts, sinks), attend_in_window(*parts, sinks, 10)):
        gradients = torch.autograd.grad(mixed.square().sum(), [*parts, sinks])
        found.append([mixed, *gradients])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("tokens", [1, 7, 50])
def test_grouped_experts_and_their_gradients_are_those_of_all_experts_computed_densely(
    tokens: int, kind: torch.dtype
) -> None:
    """Of few tokens some experts have none."""
    torch.manual_seed(0)
    shape = small()
    router, experts = Router(shape).to(kind), Experts(shape).to(kind)
    for parameter in [*router.parameters(), *experts.parameters()]:
        torch.nn.init.normal_(parameter, std=0.3)
    hidden = torch.randn(tokens, shape.width, dtype=kind, requires_grad=True)
    found = []
    for way in (lambda: experts(hidden, *router(hidden)), lambda: dense(router, experts, hidden)):
        output = way()
        wanted = [hidden, *router.parameters(), *experts.parameters()]
        found.append([output, *torch.autograd.grad(output.square().sum(), wanted)])
    error = 1e-12 if kind is torch.float64 else 1e-5
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=10 * error, atol=error)
    assert int(experts.ends[-1]) == tokens * shape.experts_per_token


def dense(router: Router, experts: Experts, hidden: Tensor) -> Tensor:
    """Every expert's answer for every token, times a share that is 0 for those that are not chosen."""
    scores = hidden @ router.weight.T + router.bias
    least = scores.topk(router.chosen, dim=1).values[:, -1:]
    shares = scores.masked_fill(scores < least, -math.inf).softmax(dim=1)
    inner = torch.einsum("tw,ewi->tei", hidden, experts.gate_up_proj) + experts.gate_up_proj_bias
    gate, linear = inner[:, :, 0::2], inner[:, :, 1::2]
    gate, linear = (
        torch.minimum(gate, torch.tensor(experts.limit, dtype=gate.dtype)),
        linear.clamp(-experts.limit, experts.limit),
    )
    answers = torch.einsum(
        "tei,eiw->tew", gate / (1 + torch.exp(-STEEPNESS * gate)) * (linear + 1), experts.down_proj
    )
    return ((answers + experts.down_proj_bias) * shares.unsqueeze(2)).sum(dim=1)


def test_the_router_is_exact_where_the_job_is_not_and_its_experts_are_as_the_job_is() -> None:
    torch.manual_seed(0)
    shape = small()
    router, experts, hidden = Router(shape), Experts(shape), torch.randn(9, shape.width)
    for parameter in [*router.parameters(), *experts.parameters()]:
        torch.nn.init.normal_(parameter, std=0.3)
    exact = router(hidden)
    plain = experts(hidden, *exact)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        chosen, shares = router(hidden)
        rough = experts(hidden, chosen, shares)
    assert torch.equal(chosen, exact[0]) and torch.equal(shares, exact[1])
    assert not torch.equal(rough, plain)
    torch.testing.assert_close(rough, plain, rtol=0.1, atol=0.05)


def test_a_token_sees_none_that_comes_later() -> None:
    model, tokens = network(), torch.arange(14).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 9] = 33
    one, other = model(tokens), model(changed)
    torch.testing.assert_close(one[:, :9], other[:, :9], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(one[:, 9:], other[:, 9:], rtol=1e-2, atol=1e-2)


def test_transformers_has_the_same_logits_loss_and_gradients_from_the_same_weights(tmp_path: Path) -> None:
    """Each within what the numbers of both are off those of their network in double."""
    from safetensors.torch import load_file

    ours = network()
    weights.save_weights(ours, tmp_path / "model.safetensors")
    theirs, exact = mixture(small()), mixture(small()).double()
    for one in (theirs, exact):
        one.load_state_dict(load_file(tmp_path / "model.safetensors"))
    tokens = torch.randint(40, (3, 41), generator=torch.Generator().manual_seed(1))
    same_but_for_rounding(
        answers(ours, tokens, weights.published_name), answers(theirs, tokens), answers(exact, tokens)
    )


def test_the_load_of_experts_is_how_often_each_was_chosen() -> None:
    model = network()
    model(torch.arange(30).view(2, 15))
    assert model.load().shape == (2, 6)
    assert model.load().sum(dim=1).tolist() == [60.0, 60.0]
    assert bool((model.load() >= 0).all())


def test_published_points_have_a_configuration_each_with_their_hyperparameters() -> None:
    path = ruleset.package_folder("rcp_checker") / "training_6.1.0" / "rcps_gpt_oss_20b.json"
    points = json.loads(path.read_text()).values()
    assert sorted(point["BS"] for point in points) == [16, 32, 64]
    for point in points:
        size, theirs = point["BS"], point["Hyperparams"]
        ours = composed("gpt_oss_20b" if size == 16 else f"gpt_oss_20b_bs{size}").hyperparameters
        assert ours.global_batch_size == size
        assert ours.opt_base_learning_rate == pytest.approx(theirs["opt_base_learning_rate"])
        assert ours.opt_learning_rate_warmup_steps * size == theirs["opt_learning_rate_warmup_samples"]


def test_norms_biases_and_sinks_have_no_decay() -> None:
    model = network()
    decaying, plain = optimizer_of(model, gpt_oss_20b("gpt_oss_20b_mini").hyperparameters).param_groups
    names = {id(one): name for name, one in model.named_parameters()}
    kept = {names[id(one)].split(".", 2)[-1] for one in plain["params"]}
    assert kept >= {
        "mlp.experts.down_proj_bias",
        "self_attn.sinks",
        "mlp.router.bias",
        "input_layernorm.weight",
    }
    assert {one.dim() for one in decaying["params"]} == {2, 3}
