"""Adapters of low rank: how many numbers they are, what they compute, the same network in another library, and their
recipe."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from tests.references.configs import composed, llama2_70b_lora
from tests.references.published_decoder import answers, decoder, same_but_for_rounding
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.references.llama2_70b_lora.config import Model
from train_bench.references.llama2_70b_lora.model import Adapted, Decoder, add_adapters
from train_bench.references.llama2_70b_lora.recipe import optimizer_of, schedule_of
from train_bench.references.parts.decoder.weights import published_name
from train_bench.rules import ruleset

VARIANTS = [name for name in discover.variants() if name.startswith("llama2_70b_lora")]
RANK, ALPHA = 3, 6.0


def small() -> Model:
    """Every part of the network."""
    shape = {"vocabulary": 40, "layers": 2, "width": 32, "heads": 4, "key_value_heads": 2, "head_size": 8}
    return Model(**shape, intermediate=48, rope_base=100.0, lora_dropout=0.0)  # type: ignore[arg-type]


def plain(seed: int = 0) -> Decoder:
    """Without adapters; weights are larger than at the start, so that attention is not even."""
    torch.manual_seed(seed)
    model = Decoder(small())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def adapted(*, dropout: float = 0.0) -> Decoder:
    """With adapters that change what they are beside."""
    model = plain()
    add_adapters(model, rank=RANK, alpha=ALPHA, dropout=dropout)
    with torch.no_grad():
        for one in adapters(model).values():
            one.lora_B.normal_(std=0.1)
    return model


def adapters(model: Decoder) -> dict[str, Adapted]:
    return {name: one for name, one in model.named_modules() if isinstance(one, Adapted)}


def merged(model: Decoder) -> Decoder:
    """A plain decoder that answers the same."""
    kept = {name: one for name, one in model.state_dict().items() if "lora_" not in name}
    kept |= {f"{name}.weight": one.merged() for name, one in adapters(model).items()}
    found = Decoder(small()).to(next(model.parameters()).dtype)
    found.load_state_dict(kept)
    return found


def drawn_tokens(*size: int) -> Tensor:
    return torch.randint(40, size, generator=torch.Generator().manual_seed(1))


def test_the_network_and_what_is_trained_of_it_have_the_published_sizes() -> None:
    config = llama2_70b_lora("llama2_70b_lora")
    with torch.device("meta"):
        model = Decoder(config.model)
        add_adapters(
            model, rank=config.hyperparameters.lora_rank, alpha=32, dropout=config.model.lora_dropout
        )
    trained = {name: one.numel() for name, one in model.named_parameters() if one.requires_grad}
    fixed = sum(one.numel() for one in model.parameters() if not one.requires_grad)
    assert (sum(trained.values()), len(trained), fixed) == (44_564_480, 320, 68_976_648_192)
    assert all(name.endswith(("proj.lora_A", "proj.lora_B")) and "self_attn" in name for name in trained)
    assert [config.model.lora_dropout, config.hyperparameters.lora_alpha] == [0.1, 32]


@torch.no_grad()
def test_an_adapted_layer_computes_what_a_slow_one_does_in_double() -> None:
    torch.manual_seed(0)
    layer = Adapted(torch.nn.Linear(5, 4, bias=False).double(), rank=2, alpha=3.0, dropout=0.5).eval()
    torch.nn.init.normal_(layer.lora_B)
    inputs = torch.randn(6, 5, dtype=torch.float64)
    expected = torch.zeros(6, 4, dtype=torch.float64)
    for sample in range(6):
        for output in range(4):
            for number in range(5):
                change = sum(float(layer.lora_B[output, k] * layer.lora_A[k, number]) for k in range(2))
                weight = float(layer.weight[output, number]) + 3.0 / 2 * change
                expected[sample, output] += weight * inputs[sample, number]
    torch.testing.assert_close(layer(inputs), expected, rtol=1e-12, atol=1e-12)


def test_adapters_change_nothing_at_first() -> None:
    model, tokens = plain(), drawn_tokens(2, 9)
    before = model(tokens)
    add_adapters(model, rank=RANK, alpha=ALPHA, dropout=0.0)
    assert torch.equal(model(tokens), before)


def test_merged_weights_answer_as_adapters_beside_them() -> None:
    model, tokens = adapted().double(), drawn_tokens(3, 20)
    torch.testing.assert_close(merged(model)(tokens), model(tokens), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(plain().double()(tokens), model(tokens), rtol=1e-2)


def test_an_adapter_alone_does_not_see_what_is_dropped_and_only_in_training() -> None:
    model, tokens = adapted(dropout=0.5), drawn_tokens(2, 9)
    assert not torch.allclose(model.train()(tokens), model(tokens))
    torch.testing.assert_close(model.eval()(tokens), adapted()(tokens))
    for one in adapters(model.train()).values():
        torch.nn.init.zeros_(one.lora_B)
    torch.testing.assert_close(model(tokens), plain()(tokens))


def test_transformers_has_the_same_logits_and_loss_and_its_gradients_are_those_of_the_adapters() -> None:
    """From merged weights whose fused projections are taken apart. With G the gradient of a merged weight, that of B is
    alpha / rank G A', and that of A is alpha / rank B' G."""
    ours, tokens = adapted(), drawn_tokens(3, 60)
    theirs = decoder(small())
    theirs.load_state_dict({published_name(name): one for name, one in apart(merged(ours)).items()})
    truth = answers(adapted().double(), tokens)
    found, others = answers(ours, tokens), answers(theirs, tokens)
    said = {name: others[name] for name in ("logits", "loss")}
    for name, one in adapters(ours).items():
        gradient, scale = fused(others, name), ALPHA / RANK
        said[f"{name}.lora_A"] = scale * one.lora_B.detach().T @ gradient
        said[f"{name}.lora_B"] = scale * gradient @ one.lora_A.detach().T
    same_but_for_rounding(found, said, truth)


def apart(model: Decoder) -> dict[str, Tensor]:
    """A plain decoder's weights, those of queries, keys and values for themselves."""
    found = {}
    for name, one in model.state_dict().items():
        if "qkv_proj" in name:
            for kind, part in zip("qkv", one.split([32, 16, 16]), strict=True):
                found[name.replace("qkv_proj", f"{kind}_proj")] = part
        else:
            found[name] = one
    return found


def fused(gradients: dict[str, Tensor], name: str) -> Tensor:
    """Of a projection of ours, by the names of transformers."""
    names = [name.replace("qkv_proj", f"{kind}_proj") for kind in "qkv"] if "qkv" in name else [name]
    return torch.cat([gradients[published_name(f"{one}.weight")] for one in names])


def test_a_token_sees_none_that_comes_later() -> None:
    model, tokens = adapted(), torch.arange(10).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 6] = 33
    one, other = model(tokens), model(changed)
    torch.testing.assert_close(one[:, :6], other[:, :6], rtol=0, atol=0)
    assert not torch.allclose(one[:, 6:], other[:, 6:])


@pytest.mark.parametrize("variant", VARIANTS)
def test_rates_rise_to_the_base_and_fall_to_nothing(variant: str) -> None:
    given = composed(variant).hyperparameters
    rate, base = schedule_of(given), given.opt_base_learning_rate
    warmup, steps = given.opt_learning_rate_warmup_steps, given.opt_learning_rate_training_steps
    assert [rate(warmup), rate(steps), rate(2 * steps)] == pytest.approx([base, 0.0, 0.0])
    assert rate(warmup + (steps - warmup) // 2) == pytest.approx(0.5 * base, rel=1e-2)


@pytest.mark.parametrize("round_name", ["5.1.0", "6.1.0"])
def test_published_points_have_a_configuration_each_with_their_hyperparameters(round_name: str) -> None:
    path = ruleset.package_folder("rcp_checker") / f"training_{round_name}" / "rcps_llama2_70b_lora.json"
    points = {point["BS"]: point for point in json.loads(path.read_text()).values()}
    configs = [composed(name) for name in VARIANTS if "mini" not in name]
    assert points.keys() == {config.hyperparameters.global_batch_size for config in configs}
    for config in configs:
        ours = config.hyperparameters
        point = points[ours.global_batch_size]
        theirs = point["Hyperparams"]
        assert ours.opt_base_learning_rate == theirs["opt_base_learning_rate"]
        assert ours.opt_gradient_clip_norm == theirs["opt_max_grad_norm"]
        assert (ours.lora_rank, ours.lora_alpha) == (theirs["lora_r"], theirs["lora_alpha"])
        assert ours.opt_learning_rate_training_steps == theirs["max_steps"]
        assert config.evaluation.until == 2 * max(point["samples to converge"])


def test_only_adapters_are_in_the_optimizer() -> None:
    model = adapted()
    (group,) = optimizer_of(model, llama2_70b_lora("llama2_70b_lora").hyperparameters).param_groups
    assert {id(one) for one in group["params"]} == {
        id(weight) for one in adapters(model).values() for weight in (one.lora_A, one.lora_B)
    }
    assert group["weight_decay"] == 0.0001


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("hyperparameters.opt_name=lamb", r"opt_name.*lamb.*adamw"),
        ("hyperparameters.opt_learning_rate_decay_schedule=linear", "linear.*cosine with linear warmup"),
        (
            "hyperparameters.opt_learning_rate_warmup_steps=1024",
            "warmup_steps is 1024; allowed are 0 to 1023",
        ),
    ],
)
def test_recipes_that_cannot_be_are_refused(override: str, message: str) -> None:
    given = llama2_70b_lora("llama2_70b_lora", override).hyperparameters
    with pytest.raises(RequestError, match=message):
        schedule_of(given)
        optimizer_of(plain(), given)
