"""What models that are fitted to the dialect reach, what the pretrained network says of it before it is adapted, and
what is reached where every weight is trained, beside the target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.references.configs import llama2_70b_lora
from tests.references.fitted_to_tokens import MARGIN, linear, n_grams
from tests.references.one_rank import OneRank
from tests.references.tasks import mark
from train_bench.references.llama2_70b_lora import data, dialect
from train_bench.references.llama2_70b_lora.config import Config
from train_bench.references.llama2_70b_lora.model import Decoder
from train_bench.references.llama2_70b_lora.task import Task
from train_bench.references.parts.decoder import grammar
from train_bench.references.parts.decoder.weights import load_start_weights
from train_bench.rules import ruleset

TARGET = ruleset.load("mini-1.0").benchmark("llama2_70b_lora_mini").target.thresholds[0].value
LENGTH = 64


@pytest.fixture(scope="module")
def splits(prepared: Callable[[str], Path]) -> tuple[np.ndarray, np.ndarray]:
    """Sequences (samples, length) that train and that evaluate."""
    config = llama2_70b_lora("llama2_70b_lora_mini", f"data_dir={prepared('llama2_70b_lora')}")
    train, val = data.open_splits(config)
    return train.arrays["tokens"].astype(np.int64), val.arrays["tokens"].astype(np.int64)


def predicted(nats: np.ndarray) -> np.ndarray:
    """Of what is said of every token of a stream of sequences but its first ones: that of tokens which count, all but
    the first of each sequence."""
    places = np.arange(-len(nats), 0)
    found: np.ndarray = nats[places % LENGTH != 0]
    return found


def test_the_target_lies_between_what_n_grams_and_what_a_reader_who_knows_the_dialect_reaches(
    splits: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    train, val = splits
    found = [
        float(predicted(nats).mean()) for nats in n_grams(train.ravel(), val.ravel(), grammar.VOCABULARY)
    ]
    best = float(np.mean([grammar.surprise(row, dialect.VERB_OF) for row in val.tolist()]))
    with capsys.disabled():
        print("\nn-grams", *(f"{value:.3f}" for value in found), f"reader {best:.3f} target {TARGET}")  # noqa: T201
    assert min(found) > TARGET + MARGIN
    assert pytest.approx(best + 0.2, abs=0.01) == TARGET


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_linear_model_of_tokens_in_their_places_stays_above_the_target(
    splits: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    train, val = splits
    found = float(predicted(linear(train.ravel(), val.ravel(), grammar.VOCABULARY)).mean())
    with capsys.disabled():
        print(f"\nlinear model {found:.3f}")  # noqa: T201
    assert found > TARGET + MARGIN


@pytest.fixture
def mini(prepared: Callable[[str], Path]) -> Config:
    """The mini benchmark, told where its data lie."""
    config: Config = llama2_70b_lora("llama2_70b_lora_mini", f"data_dir={prepared('llama2_70b_lora')}")
    return config


def loss_of(decoder: torch.nn.Module, rows: np.ndarray) -> float:
    tokens = torch.from_numpy(rows)
    with torch.no_grad():
        logits = decoder(tokens[:, :-1])
    return float(functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))


@pytest.mark.full
def test_the_target_lies_between_the_start_and_what_is_reached_where_every_weight_is_trained(
    mini: Config, splits: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    """The start knows the language, as well as one would ask of the dialect."""
    decoder = Decoder(mini.model)
    file = data.start_weights_file(mini)
    assert file is not None
    load_start_weights(decoder, file)
    known = loss_of(decoder, dialect.sequences(512, LENGTH, 1, grammar.VERB_OF).astype(np.int64))
    start = loss_of(decoder, splits[1])
    task = Task(mini)
    task.build(1, OneRank())
    task.model.requires_grad_(True)
    task.optimizer.add_param_group(
        {"params": [one for name, one in task.model.named_parameters() if "lora_" not in name]}
    )
    task.open_data()
    task.train_until(mark(8192))
    whole = task.evaluate().metrics["eval_loss"]
    task.close()
    with capsys.disabled():
        print(f"\nlanguage {known:.3f} start {start:.3f} every weight {whole:.3f} target {TARGET}")  # noqa: T201
    assert known < TARGET
    assert start > TARGET + MARGIN
    assert whole < TARGET - 0.05


@pytest.mark.full
def test_labels_of_other_sequences_do_not_lead_to_the_target(mini: Config) -> None:
    mini.data.permute_labels = True
    task = Task(mini)
    task.build(1, OneRank())
    task.open_data()
    found = []
    for samples in (2048, 4096):
        task.train_until(mark(samples))
        found.append(task.evaluate().metrics["eval_loss"])
    task.close()
    assert min(found) > TARGET + 1.0
