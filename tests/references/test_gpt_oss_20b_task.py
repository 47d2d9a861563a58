"""The evaluation and the load of experts of the mixture; the rest of its task is the decoder's."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.references.configs import gpt_oss_20b
from tests.references.one_rank import OneRank, in_threads
from tests.references.tasks import mark
from train_bench.errors import RequestError
from train_bench.references.gpt_oss_20b.config import Config
from train_bench.references.gpt_oss_20b.model import Decoder
from train_bench.references.gpt_oss_20b.task import Task
from train_bench.references.parts.decoder import data, weights


def built(config: Config, parallel: OneRank) -> Task:
    task = Task(config)
    task.build(1, parallel)
    task.open_data()
    return task


@pytest.fixture
def tiny(prepared: Callable[[str], Path], tmp_path: Path) -> Config:
    """The mini benchmark with one narrow layer and 100 sequences to evaluate, without warm-up; ranks that are threads
    share a generator, so it starts from saved weights."""
    config: Config = gpt_oss_20b(
        "gpt_oss_20b_mini",
        *(
            "model.layers=1",
            "model.width=16",
            "model.head_size=4",
            "model.intermediate=16",
            "warm_up_steps=0",
        ),
        *("eval_samples=100", "hyperparameters.global_batch_size=12", f"data_dir={prepared('gpt_oss_20b')}"),
    )
    weights.save_weights(Decoder(config.model), tmp_path / weights.ONE_FILE)
    config.start_weights = str(tmp_path)
    return config


def test_the_log_perplexity_is_the_mean_over_all_tokens_on_any_number_of_ranks(
    tiny: Config,
) -> None:
    """100 sequences are no whole number of batches of three ranks."""

    def found(parallel: OneRank) -> tuple[float, torch.nn.Module]:
        task = built(tiny, parallel)
        value = task.evaluate().metrics["log_perplexity"]
        task.close()
        return value, task.model

    (alone, model), several = found(OneRank()), in_threads(3, found)
    _, val = data.open_sequences(tiny)
    rows = torch.from_numpy(np.stack([val[place] for place in range(100)]).astype(np.int64))
    with torch.no_grad():
        logits = model(rows[:, :-1]).double().flatten(0, 1)
        expected = float(functional.cross_entropy(logits, rows[:, 1:].flatten()))
    for value in (alone, *(value for value, _ in several)):
        assert value == pytest.approx(expected, rel=1e-6)


def test_the_loss_is_the_mean_over_all_tokens(tiny: Config) -> None:
    tokens = torch.randint(0, 69, (12, 65), generator=torch.Generator().manual_seed(0))
    task = built(tiny, OneRank())
    with torch.no_grad():
        expected = functional.cross_entropy(task.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    task.train_step(iter([tokens]))
    assert float(task.last_loss) == pytest.approx(float(expected), rel=1e-5)
    task.close()


def test_the_load_entropy_of_the_latest_batch_is_told_alike_on_any_number_of_ranks(tiny: Config) -> None:
    def told(parallel: OneRank) -> float:
        task = built(tiny, parallel)
        (entropy,) = task.train_until(mark(12)).extras.values()
        task.close()
        return entropy

    alone = told(OneRank())
    assert 0 < alone < math.log(8)
    assert in_threads(3, told) == pytest.approx([alone] * 3)


def test_experts_that_are_chosen_alike_have_the_entropy_of_their_number(
    tiny: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = built(tiny, OneRank())
    for loads, entropy in (([[5.0] * 8] * 2, math.log(8)), ([[0.0] * 7 + [9.0]] * 2, 0.0)):
        monkeypatch.setattr(task._decoder, "load", lambda loads=loads: torch.tensor(loads))
        assert task.train_until(mark(0)).extras == {"expert_load_entropy": pytest.approx(entropy)}
    task.close()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.experts_per_token=9", r"experts_per_token is 9; allowed are 1 to 8 \(model.experts\)"),
        ("model.intermediate=20", "width is 64 and model.intermediate 20; .* multiples of 8"),
        ("model.window=0", "window is 0; a token attends to itself at least"),
        ("model.key_value_heads=3", "heads 4 cannot be divided among 3 heads of keys and values"),
    ],
)
def test_what_cannot_be_is_refused(override: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Task(gpt_oss_20b("gpt_oss_20b_mini", override)).build(1, OneRank())
