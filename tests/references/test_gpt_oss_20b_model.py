"""The mixture of experts: its size, attention, all experts computed densely, the same network computed slowly from its
configuration and by another library, and its recipe."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.references.configs import composed, gpt_oss_20b
from tests.references.published_decoder import (
    Answers,
    answers,
    mixture,
    same_but_for_rounding,
    slow_attention,
)
from tests.references.slow_mixture import POINTS, SlowMixture
from train_bench.references.gpt_oss_20b.config import Model
from train_bench.references.gpt_oss_20b.model import (
    Attention,
    Decoder,
    Experts,
    Router,
    attend_in_window,
)
from train_bench.references.parts.decoder.recipe import optimizer_of, schedule_of
from train_bench.references.parts.decoder.rotary import plain_frequencies, rotations
from train_bench.rules import ruleset


def small(**changes: float) -> Model:
    """Every part of the network; sequences are longer than its window."""
    shape = {"vocabulary": 40, "layers": 2, "width": 32, "heads": 4, "key_value_heads": 2, "head_size": 8}
    mixed = {"intermediate": 16, "experts": 6, "experts_per_token": 2, "window": 5}
    return Model(**(shape | mixed | changes))  # type: ignore[arg-type]


def network(seed: int = 0, **changes: float) -> Decoder:
    torch.manual_seed(seed)
    model = Decoder(small(**changes))
    with torch.no_grad():
        for parameter in model.parameters():  # larger than at the start, so that attention is not even
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def test_the_network_has_the_numbers_of_parameters_of_its_configuration() -> None:
    with torch.device("meta"):
        model = Decoder(gpt_oss_20b("gpt_oss_20b").model)
    assert sum(one.numel() for one in model.parameters()) == 20_488_418_112
    assert not [name for name, _ in model.named_parameters() if "bias" in name or "sink" in name]


def test_weights_start_from_the_deviations_of_the_configuration() -> None:
    """Those whose output is added to the stream are smaller by the square root of how many there are."""
    torch.manual_seed(0)
    shape = {"width": 256, "intermediate": 256, "heads": 16, "head_size": 16, "vocabulary": 1000}
    model = Decoder(small(layers=24, **shape))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert bool((parameter == 1).all()), name
        elif not name.endswith("router.weight"):  # which is too small to estimate from
            smaller = math.sqrt(48) if name.endswith(("o_proj.weight", "down_proj")) else 1.0
            assert float(parameter.detach().std()) == pytest.approx(0.008 / smaller, rel=0.05), name


FIRST_LOSSES = (11.867944717407227, 11.877372741699219, 11.880605697631836)
"""Of mlcommons/training, small_llm_moe_pretraining/primus/rcp_logs: gbs16/run_9, gbs32/run_1 and gbs64/run_0."""


def test_the_first_loss_is_what_start_weights_of_the_configuration_give() -> None:
    """A logit is a normed vector, whose numbers have a mean square of 1, times weights of its deviation."""
    shape = gpt_oss_20b("gpt_oss_20b").model
    for loss in FIRST_LOSSES:
        assert math.log(shape.vocabulary) + shape.width * shape.deviation**2 / 2 == pytest.approx(
            loss, abs=0.03
        )
    torch.manual_seed(0)
    model = Decoder(small(width=1024, vocabulary=5000))
    tokens = torch.randint(5000, (8, 65), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert float(found) == pytest.approx(math.log(5000) + 1024 * 0.008**2 / 2, abs=0.03)


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("gpt_oss_20b", [3.125e-06, 6.25e-06, 9.375e-06, 1.25e-05]),
        ("gpt_oss_20b_bs32", [6.25e-06, 1.25e-05, 1.875e-05, 2.5e-05]),
        ("gpt_oss_20b_bs64", [5.208333333333333e-06, 1.0416666666666666e-05, 1.5625e-05]),
    ],
)
def test_rates_of_the_warm_up_are_those_of_published_logs(name: str, rates: list[float]) -> None:
    """Of the same logs, which have with each loss the rate of the next step; the first step's is 0, and the second loss
    is like the first."""
    schedule = schedule_of(composed(name))
    assert schedule(0) == 0.0
    assert [schedule(step) for step in range(1, len(rates) + 1)] == pytest.approx(rates)


def test_windows_are_of_128_tokens_before_the_own_in_the_first_layer_and_every_second() -> None:
    with torch.device("meta"):
        model = Decoder(gpt_oss_20b("gpt_oss_20b").model)
    assert [layer.self_attn.window for layer in model.layers] == [129, None] * 12


TOKENS = [7, 3, 39, 3, 0, 11, 25, 25, 1, 18, 30, 2]


def slowly(model: Decoder, *otherwise: str) -> Tensor:
    weights = {name: one.detach().double().numpy() for name, one in model.named_parameters()}
    return torch.from_numpy(SlowMixture(model.shape, weights, otherwise).logits(TOKENS))


@torch.no_grad()
def ours(model: Decoder) -> Tensor:
    logits: Tensor = model.double()(torch.tensor([TOKENS]))[0]
    return logits


@pytest.mark.parametrize("window", [1, 2, 5, 6, 11, 12, 40])
def test_logits_are_those_of_a_slow_network_made_from_the_configuration(window: int) -> None:
    model = network(window=window)
    torch.testing.assert_close(ours(model), slowly(model), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("point", POINTS)
def test_each_point_of_the_configuration_is_noticed(point: str) -> None:
    """The slow network with this point otherwise; of start weights where a larger network would hide it."""
    torch.manual_seed(0)
    model = Decoder(small()) if point == "epsilon 1e-5" else network()
    exact = ours(model)
    off = float((slowly(model, point) - exact).abs().max() / exact.abs().max())
    assert off > 1e-3, off


@pytest.mark.parametrize("window", [1, 3, 5, 8, 11, 12, 40, None])
def test_attention_is_what_a_slow_one_computes_in_double(window: int | None) -> None:
    """In windows that divide the length, do not, and are longer."""
    torch.manual_seed(0)
    shape, length = small(), 12
    attention = Attention(shape, window=window).double()
    for norm in (attention.q_norm, attention.k_norm):
        torch.nn.init.normal_(norm.weight, mean=1.0)
    hidden = torch.randn(2, length, 32, dtype=torch.float64)
    cosine, sine = rotations(plain_frequencies(100.0, shape.head_size, hidden), length)
    expected = torch.stack([slow_attention(attention, shape, one, cosine, sine) for one in hidden])
    torch.testing.assert_close(attention(hidden, cosine, sine), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("window", [3, None])
def test_keys_and_values_are_not_repeated_for_the_heads_that_share_them(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = []
    kernel = functional.scaled_dot_product_attention

    def noting(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        heads.append((key.shape[1], value.shape[1]))
        return kernel(query, key, value, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", noting)
    shape = small()
    attention, hidden = Attention(shape, window=window), torch.randn(2, 12, 32)
    attention(hidden, *rotations(plain_frequencies(100.0, shape.head_size, hidden), 12))
    assert heads == [(shape.key_value_heads,) * 2] and shape.key_value_heads < shape.heads


def test_a_window_of_the_whole_length_is_no_window_in_its_gradients_either() -> None:
    torch.manual_seed(0)
    parts = [torch.randn(2, 3, 10, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    found = []
    for mixed in (
        functional.scaled_dot_product_attention(*parts, is_causal=True),
        attend_in_window(*parts, 10),
    ):
        found.append([mixed, *torch.autograd.grad(mixed.square().sum(), parts)])
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
    scores = hidden @ router.weight.T
    least = scores.topk(router.chosen, dim=1).values[:, -1:]
    shares = scores.masked_fill(scores < least, -math.inf).softmax(dim=1)
    gate, linear = torch.einsum("tw,ewi->tei", hidden, experts.gate_up_proj).chunk(2, dim=2)
    answers = torch.einsum("tei,eiw->tew", gate / (1 + torch.exp(-gate)) * linear, experts.down_proj)
    return (answers * shares.unsqueeze(2)).sum(dim=1)


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


def test_a_published_network_of_the_same_parts_has_the_same_logits_loss_and_gradients() -> None:
    """Qwen3-MoE in transformers, which has no window: in sequences that are no longer than the window. Each within what
    the numbers of both are off those of their network in double."""
    model = network(window=40)
    theirs, exact = mixture(model.shape), mixture(model.shape).double()
    for one in (theirs, exact):
        one.load_state_dict(in_their_layout(dict(model.named_parameters())))
    tokens = torch.randint(40, (3, 41), generator=torch.Generator().manual_seed(1))
    found: Answers = answers(model, tokens)
    same_but_for_rounding(in_their_layout(found), answers(theirs, tokens), answers(exact, tokens))


def in_their_layout(named: Answers) -> Answers:
    """By their names; an expert's matrices are the other way round."""
    layout = {}
    for name, value in named.items():
        turned = value.transpose(1, 2).contiguous() if ".experts." in name else value
        theirs = name.replace("mlp.router.", "mlp.gate.")
        alone = theirs in ("logits", "loss") or theirs.startswith("lm_head.")
        layout[theirs if alone else f"model.{theirs}"] = turned.detach()
    return layout


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
        assert (
            ours.opt_end_learning_rate == 4e-5
        )  # at every batch (training_rules, "Small LLM MoE pretraining")


def test_norms_have_no_decay() -> None:
    decaying, plain = optimizer_of(network(), gpt_oss_20b("gpt_oss_20b_mini").hyperparameters).param_groups
    assert {one.dim() for one in decaying["params"]} == {2, 3}
    assert {one.dim() for one in plain["params"]} == {1}
