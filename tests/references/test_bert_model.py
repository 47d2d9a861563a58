"""BERT: size, names, start weights, masking, losses, rates, evaluation points."""

from __future__ import annotations

import math
import re
from pathlib import Path

import mlperf_logging
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.references.configs import BERTS, bert
from train_bench.errors import RequestError
from train_bench.references.bert.config import Model
from train_bench.references.bert.data import packing_of
from train_bench.references.bert.loss import pretraining_loss
from train_bench.references.bert.model import Bert, Logits, gelu, tensor_name, tensor_names
from train_bench.references.bert.recipe import optimizer_of, schedule_of
from train_bench.references.bert.weights import load_start_weights
from train_bench.rules import ruleset

SMALL = Model(layers=2, width=12, heads=3, intermediate=20, vocabulary=30, positions=9)


@pytest.fixture
def small() -> Bert:
    torch.manual_seed(0)
    return Bert(SMALL).eval()


def tokens_of(samples: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 30, (samples, 9), generator=generator)
    segments = (torch.arange(9) > 4).long().expand(samples, 9)
    return tokens, segments, torch.full((samples,), 9), torch.tensor([[2, 5]]).expand(samples, 2)


def official_tensor_names() -> list[str]:
    package = Path(mlperf_logging.__file__).parent
    text = (package / "compliance_checker" / "training_1.1.0" / "closed_bert.yaml").read_text()
    return re.findall(r'"((?:bert|cls)/[^"]+)"', text)


def test_the_full_network_has_336226108_parameters_in_the_398_tensors_of_the_rules() -> None:
    with torch.device("meta"):
        full = Bert(bert("bert").model)
    assert sum(weight.numel() for weight in full.parameters()) == 336_226_108
    assert len(tensor_names(full)) == 398
    assert sorted(tensor_names(full)) == sorted(official_tensor_names())


def test_a_parameter_that_the_rules_do_not_know_has_no_name() -> None:
    with pytest.raises(KeyError, match="other"):
        tensor_name("layers.0.other.weight")


def test_weights_start_from_a_normal_that_is_cut_at_two_deviations() -> None:
    torch.manual_seed(0)
    network = Bert(Model(layers=1, width=64, heads=2, intermediate=256, vocabulary=2000, positions=32))
    for name, weight in network.named_parameters():
        kind = tensor_name(name).rpartition("/")[2]
        if kind in ("bias", "beta", "output_bias"):
            assert not weight.any(), name
        elif kind == "gamma":
            assert bool((weight == 1).all()), name
        else:
            assert float(weight.detach().abs().max()) <= 0.04, name
    assert float(network.embeddings.word.weight.detach().std()) == pytest.approx(0.02 * 0.8796, rel=0.01)


@pytest.mark.parametrize("packed", [False, True])
def test_layers_share_one_mask_in_the_numerics_of_the_job(
    small: Bert, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = []
    attention = functional.scaled_dot_product_attention

    def noting(*parts: torch.Tensor, attn_mask: torch.Tensor, **options: float) -> torch.Tensor:
        masks.append(attn_mask)
        return attention(*parts, attn_mask=attn_mask, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", noting)
    tokens, segments, lengths, positions = tokens_of(2)
    lengths = lengths - torch.tensor([0, 4])
    with torch.autocast("cpu", torch.bfloat16):
        small(tokens, segments, lengths, positions, packing_of(lengths, 9) if packed else None)
    assert masks[0].dtype == torch.bfloat16
    assert masks[0] is masks[1]
    assert bool((masks[0] < -9000).any())


def test_gelu_is_its_tanh_form() -> None:
    x = np.linspace(-4, 4, 33)
    expected = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(gelu(torch.from_numpy(x)).numpy(), expected, atol=1e-12)


def test_examples_that_share_rows_do_not_see_each_other(small: Bert) -> None:
    tokens, segments, _, positions = tokens_of(5)
    lengths = torch.tensor([6, 9, 3, 7, 0])
    packing = packing_of(lengths, 9)
    assert len(packing) == 3
    gradients = []
    for rows in (None, packing):
        small.zero_grad()
        logits = small(tokens, segments, lengths, positions[:, :1], rows)
        (logits.words[:4].square().mean() + logits.sentences[:4].square().mean()).backward()
        gradients.append((logits, [weight.grad.clone() for weight in small.parameters()]))
    (apart, one), (together, other) = gradients
    torch.testing.assert_close(together.words[:4], apart.words[:4])
    torch.testing.assert_close(together.sentences[:4], apart.sentences[:4])
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


def test_padding_changes_nothing(small: Bert) -> None:
    tokens, segments, lengths, positions = tokens_of(1)
    changed = tokens.clone()
    changed[0, 6:] = (tokens[0, 6:] + 7) % 30
    with torch.no_grad():
        one = small(tokens, segments, lengths - 3, positions)
        other = small(changed, segments, lengths - 3, positions)
        whole = small(changed, segments, lengths, positions)
    torch.testing.assert_close(one, other)
    assert not torch.allclose(one.words, whole.words)


def test_a_layer_is_attention_and_dense_layers_with_a_norm_after_each(small: Bert) -> None:
    """The layer once more, by its formulas, head by head."""
    layer = small.layers[0]
    attention = layer.attention
    hidden = torch.randn(2, 9, 12, generator=torch.Generator().manual_seed(2))
    added = torch.zeros(2, 1, 1, 9)
    added[0, 0, 0, 7:] = -10000.0
    heads = []
    for head in range(3):
        part = slice(4 * head, 4 * head + 4)
        query, key, value = (
            functional.linear(hidden, project.weight[part], project.bias[part])
            for project in (attention.query, attention.key, attention.value)
        )
        scores = query @ key.transpose(1, 2) / math.sqrt(4) + added[:, 0]
        heads.append(scores.softmax(dim=-1) @ value)
    after = attention.norm(hidden + attention.output(torch.cat(heads, dim=-1)))
    expected = layer.norm(after + layer.output(gelu(layer.intermediate(after))))
    torch.testing.assert_close(layer(hidden, added), expected, atol=1e-5, rtol=1e-5)
    assert layer.norm.eps == attention.norm.eps == 1e-12


def test_words_are_predicted_at_the_masked_positions_with_the_embeddings_as_weights(small: Bert) -> None:
    tokens, segments, lengths, positions = tokens_of(2)
    with torch.no_grad():
        one = small(tokens, segments, lengths, positions)
        other = small(tokens, segments, lengths, positions.flip(1))
    assert one.words.shape == (2, 2, 30) and one.sentences.shape == (2, 2)
    torch.testing.assert_close(one.words, other.words.flip(1))
    (gradient,) = torch.autograd.grad(
        small(tokens, segments, lengths, positions).words.sum(), small.embeddings.word.weight
    )
    unseen = sorted(set(range(30)) - set(tokens.flatten().tolist()))
    assert bool(gradient[unseen].any(dim=1).all())


def test_the_loss_is_the_mean_over_masked_words_and_the_mean_over_pairs() -> None:
    words = torch.zeros(1, 3, 2)
    words[0, 0, 1] = math.log(3.0)
    words[0, 2, 0] = 50.0
    logits = Logits(words, torch.tensor([[0.0, math.log(4.0)]]))
    weights = torch.tensor([[1.0, 1.0, 0.0]])
    found = pretraining_loss(logits, torch.tensor([[1, 0, 1]]), weights, torch.tensor([1]))
    expected = (math.log(4 / 3) + math.log(2)) / (2 + 1e-5) + math.log(5 / 4)
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_a_batch_without_masked_words_has_the_loss_of_its_pairs() -> None:
    logits = Logits(torch.zeros(1, 3, 2), torch.zeros(1, 2))
    found = pretraining_loss(
        logits, torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 3), torch.tensor([0])
    )
    assert float(found) == pytest.approx(math.log(2), abs=1e-6)


def test_norms_and_biases_have_neither_decay_nor_adaptation(small: Bert) -> None:
    adapted, plain = optimizer_of(small, bert("bert").hyperparameters).param_groups
    names = {id(weight): tensor_name(name) for name, weight in small.named_parameters()}
    kinds = {names[id(weight)].rpartition("/")[2] for weight in adapted["params"]}
    embeddings = {"word_embeddings", "position_embeddings", "token_type_embeddings"}
    assert kinds == embeddings | {"kernel", "output_weights"}
    assert adapted["weight_decay"] == 0.01 and adapted["layer_adaptation"]
    assert plain["weight_decay"] == 0.0 and not plain["layer_adaptation"]
    assert len(adapted["params"]) + len(plain["params"]) == len(names)


@pytest.mark.parametrize(
    ("variant", "rates"),
    [
        ("bert", {0: 0.00035, 6850: 0.000175, 13700: 0.0, 20000: 0.0}),
        ("bert_bs3072", {0: 0.0, 50: 0.001, 100: 0.002 * 1041 / 1141}),
        ("bert_bs6144", {0: 0.0029293, 350: 0.0029293 / 2}),
        ("bert_bs8192", {0: 0.00288293 * 76 / 287, 210: 0.00288293 * 286 / 287, 211: 0.00288293 * 389 / 600}),
        ("bert_bs12288", {0: 0.0031 / 3, 200: 0.0031 * 3 / 5}),
    ],
)
def test_the_warm_up_replaces_the_decay_to_zero(variant: str, rates: dict[int, float]) -> None:
    schedule = schedule_of(bert(variant).hyperparameters)
    assert {step: schedule(step) for step in rates} == pytest.approx(rates)


@pytest.mark.parametrize("start", [5, 0, -76])
def test_without_a_warm_up_its_start_means_nothing(start: int) -> None:
    hyperparameters = bert("bert", f"hyperparameters.start_warmup_step={start}").hyperparameters
    schedule = schedule_of(hyperparameters)
    assert [schedule(step) for step in (0, 4, 5)] == pytest.approx(
        [0.00035 * (1 - t / 13700) for t in (0, 4, 5)]
    )


def test_a_rate_is_never_below_zero_before_the_step_from_which_a_warm_up_counts() -> None:
    overrides = [
        f"hyperparameters.{name}=10" for name in ("num_warmup_steps", "opt_learning_rate_warmup_steps")
    ]
    schedule = schedule_of(bert("bert", *overrides, "hyperparameters.start_warmup_step=5").hyperparameters)
    assert [schedule(step) for step in (0, 5, 10)] == pytest.approx([0.0, 0.0, 0.00035 / 2])


def test_a_decay_over_no_steps_is_refused() -> None:
    with pytest.raises(RequestError, match=r"opt_learning_rate_training_steps is 0; .* 1 or more"):
        schedule_of(bert("bert", "hyperparameters.opt_learning_rate_training_steps=0").hyperparameters)


def test_quality_is_looked_at_as_often_as_the_batch_size_demands() -> None:
    rules = ruleset.load("training-1.1.0").benchmark("bert")
    found = {
        batch: rules.schedule_at(batch).default()
        for batch in (256, 448, 1536, 2048, 3072, 4096, 6144, 8192, 12288)
    }
    periods = [150_000, 150_000, 150_000, 150_000, 175_000, 175_000, 200_000, 225_000, 275_000]
    assert [due.period for due in found.values()] == periods
    assert all(due.first == due.period for due in found.values())


@pytest.mark.parametrize("variant", ["bert", *BERTS])
def test_a_published_point_trains_as_long_as_its_rate_is_above_zero(variant: str) -> None:
    config = bert(variant)
    hyperparameters = config.hyperparameters
    assert (
        config.evaluation.until
        == hyperparameters.global_batch_size * hyperparameters.opt_learning_rate_training_steps
    )


def archive_of(network: nn.Module) -> dict[str, np.ndarray]:
    """The weights as the rules name and shape them."""
    arrays = {}
    for name, weight in network.named_parameters():
        array = weight.detach().numpy().copy()
        arrays[tensor_name(name)] = array.T if tensor_name(name).endswith("/kernel") else array
    return arrays


def test_start_weights_fill_every_parameter_and_ignore_what_an_optimizer_left(
    small: Bert, tmp_path: Path
) -> None:
    arrays = archive_of(small)
    assert arrays["bert/encoder/layer_1/intermediate/dense/kernel"].shape == (12, 20)
    assert arrays["cls/seq_relationship/output_weights"].shape == (2, 12)
    np.savez(tmp_path / "start.npz", **arrays, **{"bert/pooler/dense/kernel/adam_m": np.zeros(1)})
    torch.manual_seed(9)
    other = Bert(SMALL).eval()
    load_start_weights(other, tmp_path / "start.npz")
    for name, weight in other.named_parameters():
        assert torch.equal(weight, small.get_parameter(name)), name


def damaged(arrays: dict[str, np.ndarray], how: str) -> dict[str, np.ndarray]:
    name = "bert/encoder/layer_1/intermediate/dense/kernel"
    if how == "missing":
        return {key: array for key, array in arrays.items() if key != name}
    broken = arrays[name].T if how == "transposed" else np.full_like(arrays[name], np.nan)
    return arrays | {name: broken}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "have no tensor bert/encoder/layer_1/intermediate/dense/kernel"),
        ("transposed", r"shape \(20, 12\); the model's is \(12, 20\)"),
        ("nan", "not finite"),
    ],
)
def test_start_weights_that_do_not_fit_are_refused(
    small: Bert, tmp_path: Path, how: str, message: str
) -> None:
    np.savez(tmp_path / "start.npz", **damaged(archive_of(small), how))
    with pytest.raises(RequestError, match=message):
        load_start_weights(small, tmp_path / "start.npz")


@pytest.mark.parametrize("content", [None, b"", b"no archive"])
def test_a_file_that_is_no_archive_is_refused(small: Bert, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "start.npz").write_bytes(content)
    with pytest.raises(RequestError, match=r"start\.npz cannot be read as an archive of numpy\.savez"):
        load_start_weights(small, tmp_path / "start.npz")


def test_a_full_run_without_start_weights_is_refused_and_says_what_to_fetch() -> None:
    assert "model.ckpt-28252" in str(bert("bert").refuse())
    assert bert("bert", "start_weights=start.npz").refuse() is None


def test_the_two_keys_of_the_warm_up_have_to_agree() -> None:
    config = bert("bert", "start_weights=start.npz", "hyperparameters.num_warmup_steps=3")
    assert "have to agree" in str(config.refuse())
