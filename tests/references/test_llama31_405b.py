"""llama31_405b beyond llama31_8b: rows of padding, start weights cut to them, halves of the training files."""

from __future__ import annotations

import fnmatch
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.references import distributed
from tests.references.configs import llama31_8b
from tests.references.one_rank import OneRank
from train_bench.errors import RequestError
from train_bench.references.llama31_8b.config import Config
from train_bench.references.llama31_8b.model import Decoder
from train_bench.references.llama31_8b.task import Task
from train_bench.references.parts import stream
from train_bench.references.parts.decoder import data
from train_bench.references.parts.decoder.weights import save_weights

SHARD = "c4-train.{:05d}-of-01024.json.gz"


def small(folder: Path, *overrides: str) -> Config:
    """The benchmark with a small network, the words of the invented language and some rows of padding."""
    vocabulary = distributed.c4(folder / "source", documents=60)
    config: Config = llama31_8b(
        "llama31_405b",
        *("warm_up_steps=0", "data.workers=0", "eval_samples=20", f"data_dir={folder / 'tokens'}"),
        *(f"model.vocabulary={vocabulary}", "model.padded_vocabulary=80"),
        *(
            "model.layers=1",
            "model.width=16",
            "model.heads=2",
            "model.key_value_heads=1",
            "model.head_size=8",
        ),
        *("model.intermediate=16", "hyperparameters.max_sequence_length=16"),
        *("hyperparameters.global_batch_size=8", f"start_weights={folder}", *overrides),
    )
    return config


def start_weights(config: Config, folder: Path, rows: int) -> dict[str, torch.Tensor]:
    """Published weights of a network with so many rows, and their tensors."""
    shape = llama31_8b(
        "llama31_8b",
        *(
            f"model.{name}={getattr(config.model, name)}"
            for name in ("layers", "width", "heads", "head_size")
        ),
        *(f"model.{name}={getattr(config.model, name)}" for name in ("key_value_heads", "intermediate")),
        f"model.vocabulary={rows}",
    ).model
    torch.manual_seed(3)
    save_weights(Decoder(shape), folder / "model.safetensors")
    return load_file(folder / "model.safetensors")


def built(config: Config) -> Any:
    task = Task(config)
    task.build(1, OneRank())
    return task


def test_embedding_and_output_layer_take_the_first_rows_of_larger_start_weights(tmp_path: Path) -> None:
    config = small(tmp_path)
    published = start_weights(config, tmp_path, rows=100)
    model = built(config).model
    assert torch.equal(model.embed_tokens.weight, published["model.embed_tokens.weight"][:80])
    assert torch.equal(model.lm_head.weight, published["lm_head.weight"][:80])
    assert torch.equal(model.norm.weight, published["model.norm.weight"])


def test_start_weights_with_fewer_rows_are_refused(tmp_path: Path) -> None:
    config = small(tmp_path)
    start_weights(config, tmp_path, rows=79)
    with pytest.raises(
        RequestError, match=r"embed_tokens.weight has the shape \(79, 16\); the model's is \(80, 16\)"
    ):
        built(config)


def test_without_padding_start_weights_with_more_rows_are_refused(tmp_path: Path) -> None:
    config = small(tmp_path, "model.padded_vocabulary=null")
    start_weights(config, tmp_path, rows=100)
    with pytest.raises(RequestError, match=r"has the shape \(100, 16\); the model's is \(69, 16\)"):
        built(config)


def test_fewer_rows_than_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"padded_vocabulary is 68; allowed are 69 \(model.vocabulary\)"):
        built(small(tmp_path, "model.padded_vocabulary=68"))


def test_rows_of_padding_take_part_in_the_loss(tmp_path: Path) -> None:
    """As in Megatron, which masks none of them."""
    config = small(tmp_path)
    start_weights(config, tmp_path, rows=80)
    task = built(config)
    assert task.forward(data.synthetic(config, 1)[:, :-1]).shape == (1, 16, 80)


def test_batches_take_equally_from_both_halves_of_the_training_files(tmp_path: Path) -> None:
    config = small(tmp_path)
    start_weights(config, tmp_path, rows=80)
    data.prepare(config, tmp_path / "tokens", tmp_path / "source")
    train, _ = data.open_sequences(config)
    order = data.training_order(config, len(train), seed=5)
    assert isinstance(order, stream.Alternating)
    first = np.fromfile(train.files()[0], dtype="<u2")
    assert order.parts[0] == len(first) // 16 and sum(order.parts) == len(train)
    sampler = stream.Sampler(order=order, global_batch_size=8, microbatches=1, rank=0, ranks=1)
    rows = [train[index][:16] for batch in itertools.islice(sampler, 4) for index, _ in batch]
    whole = {bytes(row) for row in np.lib.stride_tricks.sliding_window_view(first, 16)}
    assert [bytes(row) in whole for row in rows] == [True, False] * 16


def test_a_run_trains_and_evaluates(tmp_path: Path) -> None:
    config = small(tmp_path)
    start_weights(config, tmp_path, rows=100)
    data.prepare(config, tmp_path / "tokens", tmp_path / "source")
    task = built(config)
    task.open_data()
    assert 0 < task.evaluate().metrics["log_perplexity"] < 10
    task.close()


def test_training_files_that_do_not_divide_into_the_parts_are_refused(tmp_path: Path) -> None:
    config = small(tmp_path, "data.train_parts=3")
    data.prepare(config, tmp_path / "tokens", tmp_path / "source")
    with pytest.raises(
        RequestError, match=r"train_parts is 3; allowed are divisors of .* training files, 2 in"
    ):
        data.training_order(config, 10, seed=5)


def test_it_trains_on_the_last_256_of_1024_shards_in_two_merged_files() -> None:
    given = llama31_8b("llama31_405b").data
    taken = [
        number
        for number in range(1024)
        if any(fnmatch.fnmatch(SHARD.format(number), one) for one in given.train_files)
    ]
    assert taken == list(range(768, 1024))
    merged = [f"c4-train.en_{number}_text_document" for number in range(8)]
    assert [
        name for name in merged if any(fnmatch.fnmatch(name, pattern) for pattern in given.train_tokens)
    ] == merged[6:]
    assert given.train_parts == 2
