"""The contract of a Task, held by language model pretraining."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.references.configs import bert
from tests.references.one_rank import OneRank
from tests.references.tasks import mark, same, weights
from train_bench.errors import RequestError
from train_bench.references.bert import data
from train_bench.references.bert.config import Config
from train_bench.references.bert.model import Bert, tensor_name
from train_bench.references.bert.quality import count_words
from train_bench.references.bert.task import Task
from train_bench.references.parts import stream


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


@pytest.fixture
def tiny(mini_bert: Config) -> Config:
    """The mini benchmark with one narrow layer, with dropout and without warm-up."""
    mini_bert.model.layers, mini_bert.model.width, mini_bert.model.intermediate = 1, 16, 16
    mini_bert.model.dropout = 0.1
    mini_bert.hyperparameters.global_batch_size = 4
    mini_bert.warm_up_steps = 0
    return mini_bert


def test_sharing_rows_changes_neither_training_nor_quality(tiny: Config) -> None:
    tiny.model.dropout = 0.0
    tasks = []
    for pack in (False, True):
        tiny.data.pack = pack
        task = built(copy.deepcopy(tiny))
        task.open_data()
        task.train_until(mark(16))
        tasks.append(task)
    for one, other in zip(*(weights(task) for task in tasks), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    apart, together = (task.evaluate().metrics["MLM_accuracy"] for task in tasks)
    assert together == pytest.approx(apart, abs=2e-3)
    for task in tasks:
        task.close()


def test_gradients_are_clipped_to_a_norm_of_one(tiny: Config) -> None:
    class Noting(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            self.clipped_at = clip_norm
            return super().step(clip_norm=clip_norm)

    parallel = Noting()
    task = built(tiny, parallel=parallel)
    task.train_step(iter([data.synthetic(tiny, 4)]))
    assert parallel.clipped_at == 1.0


def test_accumulated_gradients_are_the_mean_over_micro_batches(tiny: Config) -> None:
    """The loss is normalised by the masked words of each micro-batch, as it is by those of each rank."""
    tiny.model.dropout = 0.0
    tiny.hyperparameters.gradient_accumulation_steps = 2
    halves = [data.synthetic(tiny, 2, seed=seed) for seed in (1, 2)]
    gradients = []

    class Noting(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            gradients.append(torch.cat([weight.grad.flatten() for weight in self.model.parameters()]).clone())
            return super().step(clip_norm=clip_norm)

    task = built(tiny, parallel=Noting())
    task.train_step(iter(halves))
    tiny.hyperparameters.gradient_accumulation_steps = 1
    for half in halves:
        built(tiny, parallel=Noting()).train_step(iter([half]))
    torch.testing.assert_close(gradients[0], (gradients[1] + gradients[2]) / 2, atol=1e-6, rtol=1e-4)


def test_words_are_counted_as_a_direct_formula_counts_them() -> None:
    rng = np.random.default_rng(0)
    logits, words = rng.normal(size=(5, 4, 7)), rng.integers(7, size=(5, 4))
    real = rng.integers(2, size=(5, 4))
    found = count_words(*(torch.from_numpy(array) for array in (logits, words, real)))
    expected = sum(
        int(np.argmax(logits[i, j]) == words[i, j]) for i in range(5) for j in range(4) if real[i, j]
    )
    assert found.tolist() == [expected, real.sum(), 0]
    logits[2, 1, 3] = np.nan
    assert int(count_words(torch.from_numpy(logits), torch.from_numpy(words), torch.from_numpy(real))[2]) == 1


def test_two_ranks_find_the_accuracy_that_one_finds(tiny: Config) -> None:
    """Each claims its half of the evaluation set; the counts of both are those of one rank."""
    counted: dict[int, list[int]] = {}

    class Claiming(OneRank):
        def sum(self, value: torch.Tensor) -> torch.Tensor:
            counted.setdefault(self.size, []).append(value.tolist())
            return value

    for rank, size in ((0, 1), (0, 2), (1, 2)):
        task = built(tiny, parallel=Claiming(rank=rank, size=size))
        task.open_data()
        task.evaluate()
        task.close()
    assert np.sum(counted[2], axis=0).tolist() == counted[1][0]


def test_a_loss_that_is_not_finite_makes_the_quality_nan(tiny: Config) -> None:
    task = built(tiny)
    task.open_data()
    task.last_loss = torch.tensor(math.nan)
    assert math.isnan(task.evaluate().metrics["MLM_accuracy"])
    task.close()


def test_training_starts_from_the_start_weights(tiny: Config, tmp_path: Path) -> None:
    torch.manual_seed(5)
    network = Bert(tiny.model)
    arrays = {}
    for name, weight in network.named_parameters():
        array = weight.detach().numpy()
        arrays[tensor_name(name)] = array.T if tensor_name(name).endswith("/kernel") else array
    np.savez(tmp_path / "start.npz", **arrays)
    tiny.start_weights = str(tmp_path / "start.npz")
    assert same(weights(built(tiny)), [tensor.detach() for tensor in network.state_dict().values()])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.heads=3", "64 cannot be divided among 3 heads"),
        ("data.sequence_length=33", "sequence_length is 33; allowed are 4 to model.positions=32"),
        ("data.predictions=32", "predictions is 32; allowed are 1 to 31"),
        ("model.vocabulary=70000", "at most 65536 words"),
        ("hyperparameters.gradient_accumulation_steps=5", "choose a multiple of 5"),
    ],
)
def test_shapes_that_cannot_be_are_refused(override: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        built(bert("bert_mini", override))


FULL_STEP = """
import math, torch
from tests.memory import peak_resident
from tests.references.configs import bert
from tests.references.one_rank import OneRank
from train_bench.references.bert import data
from train_bench.references.bert.task import Task
torch.set_num_threads(1)
config = bert("bert", "hyperparameters.global_batch_size=1", "warm_up_steps=0")
task = Task(config)
task.build(1, OneRank())
assert len(task.initialized_tensors()) == 398
before = [weight.detach().flatten()[:1000].clone() for weight in task.model.parameters()]
task.train_step(iter([data.synthetic(config, 1)]))
assert math.isfinite(float(task.last_loss))
after = list(task.model.parameters())
assert all(bool(torch.isfinite(weight).all()) for weight in after)
assert not any(torch.equal(old, new.detach().flatten()[:1000]) for old, new in zip(before, after))
print(peak_resident())
"""


@pytest.mark.full
def test_a_step_of_bert_large_at_512_tokens_changes_every_tensor_and_stays_below_8_gib() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FULL_STEP], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 8 << 30


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_the_same_from_loader_processes(tiny: Config, workers: int) -> None:
    tiny.data.workers, tiny.data.pack = workers, True
    task = built(tiny)
    task.open_data()
    assert task._batches is not None
    found = [next(task._batches) for _ in range(3)]
    order = data.Shuffle(samples=16384, seed=1)
    sampler = iter(stream.Sampler(order=order, global_batch_size=4, microbatches=1, rank=0, ranks=1))
    assert task._train is not None
    for batch in found:
        expected = task._train.samples[next(sampler)]
        assert all(torch.equal(one, other) for one, other in zip(batch, expected, strict=True))
    assert 0.0 <= task.evaluate().metrics["MLM_accuracy"] <= 1.0
    task.close()
