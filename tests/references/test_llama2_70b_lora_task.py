"""The training step and the evaluation of adapters, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from tests.references.configs import llama2_70b_lora
from tests.references.one_rank import OneRank, in_threads
from tests.references.tasks import mark
from train_bench.errors import RequestError
from train_bench.references.llama2_70b_lora.config import Config
from train_bench.references.llama2_70b_lora.model import Decoder
from train_bench.references.llama2_70b_lora.task import Task
from train_bench.references.parts import arrays
from train_bench.references.parts.decoder.weights import ONE_FILE, published_name, save_weights


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


@pytest.fixture
def tiny(tmp_path: Path) -> Config:
    """The full benchmark with one narrow layer and short sequences of which parts count, from saved weights."""
    config: Config = llama2_70b_lora(
        "llama2_70b_lora",
        *(
            "model.layers=1",
            "model.width=16",
            "model.head_size=4",
            "model.heads=4",
            "model.key_value_heads=2",
        ),
        *("model.intermediate=16", "model.vocabulary=50", "data.sequence_length=20", "warm_up_steps=0"),
        *(
            "train_samples=30",
            "eval_samples=11",
            f"data_dir={tmp_path}",
            "hyperparameters.global_batch_size=6",
        ),
        *("data.eval_batch_size=2", "hyperparameters.opt_base_learning_rate=0.01"),
        f"start_weights={tmp_path / 'start'}",
    )
    (tmp_path / "start").mkdir()
    torch.manual_seed(0)
    save_weights(Decoder(config.model), tmp_path / "start" / ONE_FILE)
    rng = np.random.default_rng(0)
    splits = {}
    for split, count in (("train", 30), ("val", 11)):
        tokens = rng.integers(50, size=(count, 20)).astype(np.int32)
        hidden = np.arange(20) < rng.integers(1, 19, size=(count, 1))
        splits[split] = {"tokens": tokens, "labels": np.where(hidden, -100, tokens)}
    arrays.write(config, tmp_path, splits)
    return config


def test_the_base_is_the_same_bit_by_bit_after_training_and_every_adapter_is_another(tiny: Config) -> None:
    task = built(tiny)
    task.open_data()
    before = {name: one.detach().clone() for name, one in task.model.named_parameters()}
    task.train_until(mark(60))
    after = dict(task.model.named_parameters())
    changed = {name for name, one in after.items() if not torch.equal(one, before[name])}
    assert changed == {name for name in after if "lora_" in name} == set(task.initialized_tensors())
    assert len(changed) == 4
    task.close()


def test_the_quality_is_the_mean_over_sequences_of_the_mean_over_what_counts_on_any_number_of_ranks(
    tiny: Config,
) -> None:
    """11 sequences are no whole number of batches of three ranks."""

    def found(parallel: OneRank) -> float:
        task = built(tiny, parallel=parallel)
        task.open_data()
        value = task.evaluate().metrics["eval_loss"]
        task.close()
        return value

    _, val = arrays.open_splits(tiny)
    labels, tokens = val[list(range(11))]
    task = built(tiny)
    with torch.no_grad():
        logits = task.model.double()(tokens.long())
    means = []
    for row in range(11):
        nats = [
            float(functional.cross_entropy(logits[row, place - 1], tokens[row, place].long()))
            for place in range(1, 20)
            if labels[row, place] != -100
        ]
        means.append(sum(nats) / len(nats))
    expected = sum(means) / 11
    for values in ([found(OneRank())], in_threads(3, found)):
        assert values == pytest.approx([expected] * len(values), rel=1e-6)


def test_the_loss_is_the_mean_over_what_counts(tiny: Config) -> None:
    tiny.model.lora_dropout = 0.0
    task = built(tiny)
    train, _ = arrays.open_splits(tiny)
    labels, tokens = train[[0, 1, 2, 3, 4, 5]]
    counted = labels[:, 1:] != -100
    assert 0 < int(counted.sum()) < counted.numel()
    with torch.no_grad():
        logits = task.model(tokens.long())[:, :-1]
    expected = functional.cross_entropy(logits[counted], tokens[:, 1:][counted].long())
    task.train_step(iter([(labels, tokens)]))
    assert float(task.last_loss) == pytest.approx(float(expected), rel=1e-6)


def test_what_adapters_drop_is_not_the_same_in_every_iteration_and_the_same_with_a_seed(tiny: Config) -> None:
    def losses(seed: int) -> list[float]:
        tiny.hyperparameters.opt_base_learning_rate = 1e-12
        tiny.model.lora_dropout = 0.5
        task = built(tiny, seed)
        for name, one in task.model.named_parameters():
            if name.endswith("lora_B"):
                torch.nn.init.ones_(one)
        batch, found = task.synthetic(6), []
        for _ in range(2):
            task.iterate(batch)
            found.append(float(task.last_loss))
        return found

    first = losses(1)
    assert first == losses(1) and first[0] != first[1]


def test_gradients_are_clipped_to_what_the_benchmark_says(tiny: Config) -> None:
    class Noting(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            noted.append(clip_norm)
            return super().step(clip_norm=clip_norm)

    noted: list[float | None] = []
    task = built(tiny, parallel=Noting())
    task.iterate(task.synthetic(6))
    assert noted == [0.3]


def test_start_weights_have_fused_projections_and_others_are_refused(tiny: Config, tmp_path: Path) -> None:
    names = {
        published_name(name): torch.ones_like(one) for name, one in Decoder(tiny.model).named_parameters()
    }
    name = "model.layers.0.self_attn.qkv_proj.weight"
    assert names[name].shape == (16 + 2 * 8, 16)
    del names[name]
    save_file(names, tmp_path / "start" / ONE_FILE)
    with pytest.raises(RequestError, match=r"have no tensor model\.layers\.0\.self_attn\.qkv_proj\.weight"):
        built(tiny)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.key_value_heads=3", "heads 4 cannot be divided among 3 heads of keys and values"),
        ("model.head_size=5", "head_size is 5; rotary positions need an even number"),
        ("hyperparameters.lora_rank=0", "lora_rank is 0; allowed are 1 and more"),
        (
            "start_weights=there/elsewhere",
            r"llama2_70b_lora_mini: there is no file \S*/there/elsewhere to start from",
        ),
        ("model.width=32", r"embed_tokens\.weight has the shape \(69, 64\); the model's is \(69, 32\)"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        built(llama2_70b_lora("llama2_70b_lora_mini", f"data_dir={tmp_path}", override))


def test_a_benchmark_without_start_weights_says_what_to_fetch() -> None:
    refused = str(llama2_70b_lora("llama2_70b_lora", "data_dir=/fast/reports").refuse())
    assert "starts from pretrained weights" in refused and "benchmark.start_weights=FOLDER" in refused
    assert "data_dir (/fast/reports)" in refused
    assert llama2_70b_lora("llama2_70b_lora_mini").refuse() is None
    refused = str(llama2_70b_lora("llama2_70b_lora_mini", "start_weights=null").refuse())
    assert (
        "starts from the weights with sha256 c7f9901b" in refused
        and "Leave benchmark.start_weights out" in refused
    )


def test_layers_that_are_computed_again_drop_the_same_and_have_the_same_gradients(tiny: Config) -> None:
    def gradients(again: bool) -> list[torch.Tensor]:
        tiny.activation_checkpointing, tiny.model.lora_dropout = again, 0.5
        task = built(tiny)
        torch.manual_seed(5)
        for name, one in task.model.named_parameters():
            if name.endswith("lora_B"):
                torch.nn.init.normal_(one)
        labels, tokens = task.synthetic(6)
        torch.manual_seed(6)
        functional.cross_entropy(
            task.forward(tokens.long()).flatten(0, 1), labels.long().flatten()
        ).backward()
        return [one.grad for one in task.model.parameters() if one.grad is not None]

    plain, again = gradients(False), gradients(True)
    assert len(plain) == 4 and all(map(torch.equal, plain, again))
