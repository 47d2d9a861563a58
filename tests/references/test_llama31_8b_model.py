"""The decoder: its size, its rotations, its attention, the same network in another library, and its recipe."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from tests.references.configs import composed, llama31_8b
from tests.references.published_decoder import answers, decoder, same_but_for_rounding, slow_attention
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.references.llama31_8b.config import Model
from train_bench.references.llama31_8b.model import Attention, Decoder, frequencies
from train_bench.references.parts.decoder import weights
from train_bench.references.parts.decoder.recipe import optimizer_of, schedule_of
from train_bench.references.parts.decoder.rotary import rotated, rotations
from train_bench.rules import ruleset

VARIANTS = [name for name in discover.variants() if name.startswith("llama31_")]


def small(**changes: float) -> Model:
    """Every part of the network, and rotations of all three kinds."""
    shape = {"vocabulary": 40, "layers": 2, "width": 32, "heads": 4, "key_value_heads": 2, "head_size": 8}
    return Model(**(shape | {"intermediate": 48, "rope_base": 100.0, "old_context": 64} | changes))  # type: ignore[arg-type]


def network(seed: int = 0) -> Decoder:
    torch.manual_seed(seed)
    model = Decoder(small())
    with torch.no_grad():
        for parameter in model.parameters():  # larger than at the start, so that attention is not even
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize(
    ("variant", "parameters", "tensors"),
    [("llama31_8b", 8_030_261_248, 291), ("llama31_405b", 402_724_438_016, 1137)],
)
def test_networks_have_the_published_sizes(variant: str, parameters: int, tensors: int) -> None:
    with torch.device("meta"):
        found = list(Decoder(composed(variant).model).parameters())
    assert (sum(one.numel() for one in found), len(found)) == (parameters, tensors)


@pytest.mark.parametrize("position", [1, 700, 8191])
def test_rotations_follow_the_formula(position: int) -> None:
    """By one number after the other, for the shape of the full scale."""
    shape = llama31_8b("llama31_8b").model
    cosine, sine = rotations(frequencies(shape, torch.zeros(1, dtype=torch.float64)), 8192)
    for number in range(shape.head_size // 2):
        frequency = 500000.0 ** (-2 * number / 128)
        wave = 2 * math.pi / frequency
        if wave > 8192 / 1.0:
            frequency /= 8.0
        elif wave > 8192 / 4.0:
            share = (8192 / wave - 1.0) / (4.0 - 1.0)
            frequency = (1 - share) * frequency / 8.0 + share * frequency
        for place in (number, number + shape.head_size // 2):
            assert float(cosine[position, place]) == pytest.approx(math.cos(position * frequency), abs=1e-9)
            assert float(sine[position, place]) == pytest.approx(math.sin(position * frequency), abs=1e-9)


def test_attention_is_what_a_slow_one_computes_in_double() -> None:
    torch.manual_seed(0)
    shape, length = small(), 7
    attention, hidden = Attention(shape).double(), torch.randn(2, length, 32, dtype=torch.float64)
    cosine, sine = rotations(frequencies(shape, hidden), length)
    expected = torch.stack([slow_attention(attention, shape, one, cosine, sine) for one in hidden])
    torch.testing.assert_close(attention(hidden, cosine, sine), expected, rtol=1e-12, atol=1e-12)


def test_a_rotation_depends_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    cosine, sine = rotations(frequencies(small(), torch.zeros(1, dtype=torch.float64)), 30)
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    at = [
        float((rotated(query, cosine[p], sine[p]) * rotated(key, cosine[p - 4], sine[p - 4])).sum())
        for p in (4, 11, 29)
    ]
    assert at == pytest.approx([at[0]] * 3, rel=1e-12)


def test_a_token_sees_none_that_comes_later() -> None:
    model, tokens = network(), torch.arange(10).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 6] = 33
    one, other = model(tokens), model(changed)
    torch.testing.assert_close(one[:, :6], other[:, :6], rtol=0, atol=0)
    assert not torch.allclose(one[:, 6:], other[:, 6:])


def test_transformers_has_the_same_logits_loss_and_gradients_from_the_same_weights(tmp_path: Path) -> None:
    """Each within what the numbers of both are off those of the same network in double."""
    from safetensors.torch import load_file

    ours, shape = network(), small()
    weights.save_weights(ours, tmp_path / "model.safetensors")
    theirs = decoder(shape)
    theirs.load_state_dict(load_file(tmp_path / "model.safetensors"))
    tokens = torch.randint(shape.vocabulary, (3, 101), generator=torch.Generator().manual_seed(1))
    truth = answers(network().double(), tokens, weights.published_name)
    found = answers(ours, tokens, weights.published_name)
    others = answers(theirs, tokens)
    same_but_for_rounding(found, others, truth)


def test_weights_come_back_from_one_file_and_from_several(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = network()
    weights.save_weights(model, tmp_path / "model.safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    parts = tmp_path / "parts"
    parts.mkdir()
    places = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in set(places.values()):
        save_file({name: tensors[name] for name in tensors if places[name] == file}, parts / file)
    (parts / weights.INDEX).write_text(json.dumps({"weight_map": places}))
    for path in (tmp_path, tmp_path / "model.safetensors", parts):
        other = network(seed=5)
        weights.load_start_weights(other, path)
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(one, two)


def test_start_weights_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model, path = network(), tmp_path / "model.safetensors"
    tensors = {weights.published_name(name): one.detach() for name, one in model.named_parameters()}
    for change, message in (
        ({"lm_head.weight": None}, r"have no tensor lm_head\.weight"),
        ({"model.norm.weight": torch.ones(3)}, r"norm\.weight has the shape \(3,\); the model's is \(32,\)"),
        ({"model.norm.weight": torch.full((32,), math.nan)}, r"norm\.weight has values that are not finite"),
    ):
        kept = {name: one for name, one in (tensors | change).items() if one is not None}  # type: ignore[operator]
        save_file(kept, path)
        with pytest.raises(RequestError, match=message):
            weights.load_start_weights(model, tmp_path)
    path.write_bytes(b"no weights")
    with pytest.raises(RequestError, match=r"cannot be read: .*Fetch them again"):
        weights.load_start_weights(model, path)


def published_rate(step: int, base: float, end: float, warmup: int, steps: int) -> float:
    """`CosineAnnealing` of NeMo v2.1.0 (nemo/core/optim/lr_scheduler.py) without constant steps, branch by branch."""
    if warmup > 0 and step <= warmup:
        return base * (step + 1) / (warmup + 1)
    if step > steps:
        return end
    return (base - end) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) + end


@pytest.mark.parametrize("variant", VARIANTS)
def test_rates_are_those_of_the_published_schedule(variant: str) -> None:
    config = composed(variant)
    given, rate = config.for_ranks(1).hyperparameters, schedule_of(config)
    base, end, warmup = (
        given.opt_base_learning_rate,
        given.opt_end_learning_rate,
        given.opt_learning_rate_warmup_steps,
    )
    at = {0, 1, warmup - 1, warmup, warmup + 1, given.max_steps // 2, given.max_steps, 2 * given.max_steps}
    for step in sorted(at):
        assert rate(step) == pytest.approx(
            published_rate(step, base, end, warmup, given.max_steps), rel=1e-12
        )
    assert [rate(0), rate(warmup)] == pytest.approx([base / (warmup + 1), base])


def test_the_warm_up_of_gpt_oss_20b_is_megatrons_and_begins_at_zero() -> None:
    given, rate = composed("gpt_oss_20b").hyperparameters, schedule_of(composed("gpt_oss_20b"))
    base, warmup = given.opt_base_learning_rate, given.opt_learning_rate_warmup_steps
    assert [rate(step) for step in (0, 1, warmup)] == pytest.approx([0.0, base / warmup, base])


@pytest.mark.parametrize("variant", VARIANTS)
def test_rates_end_at_a_tenth_of_the_base_and_of_llama31_405b_at_one_rate(variant: str) -> None:
    given = composed(variant).for_ranks(1).hyperparameters
    end = 8e-7 if variant.startswith("llama31_405b") else given.opt_base_learning_rate / 10
    assert given.opt_end_learning_rate == pytest.approx(end, rel=1e-12)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name.startswith("llama31_405b")])
def test_steps_of_llama31_405b_follow_from_the_batch_size(variant: str) -> None:
    given = composed(variant).for_ranks(1).hyperparameters
    size = given.global_batch_size
    assert given.opt_base_learning_rate == pytest.approx(round(8e-5 * size / 1152, 8), rel=1e-12)
    assert given.opt_learning_rate_warmup_steps == math.ceil(8000 * 1152 / size)
    assert given.max_steps == math.ceil(1_200_000 * 1152 / size)
    assert given.opt_learning_rate_decay_steps == given.max_steps - given.opt_learning_rate_warmup_steps


def test_published_points_have_a_configuration_each_with_their_hyperparameters() -> None:
    found = 0
    folder = ruleset.package_folder("rcp_checker")
    for round_name, benchmark in (
        ("6.1.0", "llama31_8b"),
        ("6.0.0", "llama31_405b"),
        ("5.0.0", "llama31_405b"),
    ):
        points = json.loads((folder / f"training_{round_name}" / f"rcps_{benchmark}.json").read_text())
        configs = [composed(one) for one in VARIANTS if one == benchmark or one.startswith(f"{benchmark}_bs")]
        by_size = {one.hyperparameters.global_batch_size: one.hyperparameters for one in configs}
        for point in points.values():
            ours, theirs, size = by_size[point["BS"]], point["Hyperparams"], point["BS"]
            assert ours.opt_base_learning_rate == pytest.approx(theirs["opt_base_learning_rate"])
            samples = theirs.get("opt_learning_rate_warmup_samples")
            steps = theirs["opt_learning_rate_warmup_steps"] if samples is None else math.ceil(samples / size)
            assert ours.opt_learning_rate_warmup_steps == steps
            found += 1
    assert found == 14


def test_norms_have_no_decay() -> None:
    model = network()
    decaying, plain = optimizer_of(model, llama31_8b("llama31_8b_mini").hyperparameters).param_groups
    assert (decaying["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert {one.dim() for one in decaying["params"]} == {2} and len(plain["params"]) == 5
