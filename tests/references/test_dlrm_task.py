"""What the task of recommendation does beyond the contract of a Task: tables of several ranks, their checkpoints,
real data, the full network."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests import needs
from tests.references.configs import dlrm
from tests.references.one_rank import OneRank
from tests.references.several_ranks import FromFile, start
from tests.references.tasks import mark, weights
from train_bench.parallel import Parallel
from train_bench.references.dlrm import data
from train_bench.references.dlrm.config import Config
from train_bench.references.dlrm.task import Task


def built(config: Config, seed: int = 1, parallel: Parallel | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


def opened(config: Config, seed: int = 1, parallel: Parallel | None = None) -> Task:
    task = built(config, seed, parallel)
    task.open_data()
    return task


@pytest.fixture
def tiny(mini_dlrm: Config) -> Config:
    """The mini benchmark without warm-up, at its full rate from the first step."""
    mini_dlrm.warm_up_steps = 0
    mini_dlrm.hyperparameters.opt_learning_rate_warmup_steps = 0
    return mini_dlrm


def test_a_checkpoint_holds_one_file_per_table_of_the_last_step(tiny: Config, tmp_path: Path) -> None:
    task = opened(tiny)
    for samples in (256, 512):
        task.train_until(mark(samples))
        task.save(tmp_path)
    found = sorted(path.name for path in tmp_path.glob("table_*.pt"))
    assert found == [f"table_{table}_step_2.pt" for table in range(len(tiny.model.rows))]


def test_micro_batches_change_nothing_but_rounding(tiny: Config) -> None:
    ends = []
    for steps in (1, 4):
        tiny.hyperparameters.gradient_accumulation_steps = steps
        task = opened(tiny)
        task.train_until(mark(5 * 256))
        ends.append(torch.cat([tensor.flatten() for tensor in weights(task)]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-5, rtol=1e-4)


def _second_of_two(rank: int, folder: Path, config: Config) -> None:
    """Evaluate what one rank has saved, train on, evaluate and save."""
    parallel = FromFile(folder, rank=rank, size=2)
    task = opened(config, seed=99, parallel=parallel)
    assert 0 < len(task.model.tables.weights) < len(config.model.rows)
    task.load(folder)
    found = [task.evaluate().metrics["AUC"]]
    task.train_until(mark(10000))
    found.append(task.evaluate().metrics["AUC"])
    task.save(folder / "both")
    torch.save(found, folder / f"found_{rank}.pt")
    parallel.leave()


@pytest.mark.full
def test_two_ranks_find_the_quality_that_one_finds_and_train_as_it_does(tiny: Config, tmp_path: Path) -> None:
    """Tables are really split: each rank has some of them, and what it saves is read by one."""
    alone = opened(tiny)
    alone.train_until(mark(8000))
    alone.save(tmp_path)
    expected = [alone.evaluate().metrics["AUC"]]
    alone.train_until(mark(10000))
    expected.append(alone.evaluate().metrics["AUC"])
    start(_second_of_two, tmp_path, tiny, ranks=2)
    assert expected[0] != 0.5
    for rank in range(2):
        found = torch.load(tmp_path / f"found_{rank}.pt", weights_only=True)
        assert found == pytest.approx(expected, abs=1e-6)
    again = opened(tiny, parallel=FromFile(tmp_path, rank=0, size=1))
    again.load(tmp_path / "both")
    assert again.evaluate().metrics["AUC"] == pytest.approx(found[1], abs=1e-6)
    torch.testing.assert_close(weights(again), weights(alone), atol=1e-5, rtol=1e-4)


def test_what_cannot_be_trained_is_refused() -> None:
    for overrides, reason in (
        (["lr_decay_start_steps=9", "opt_learning_rate_warmup_steps=10"], "the warm-up has to end before"),
        (["sgd_opt_base_learning_rate=1"], "the decay starts at opt_base_learning_rate, 3"),
    ):
        refused = dlrm("dlrm_mini", *(f"hyperparameters.{text}" for text in overrides)).refuse()
        assert refused is not None and reason in refused
    assert dlrm("dlrm_mini").refuse() is None


def test_a_step_with_the_tables_of_the_full_benchmark_cut_to_a_thousand_rows() -> None:
    config = dlrm("dlrm", "model.max_table_rows=1000", "hyperparameters.global_batch_size=64")
    config.warm_up_steps = 0
    task = built(config)
    assert len(task.initialized_tensors()) == 9
    assert sum(len(table) for table in task.model.tables.weights.values()) == sum(config.model.rows)
    before = weights(task)
    task.train_step(iter([data.synthetic(config, 64)]))
    assert math.isfinite(float(task.last_loss))
    changed = [not torch.equal(one, other) for one, other in zip(before, weights(task), strict=True)]
    assert all(changed)


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini_dlrm: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip(needs.NO_GPU)
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = opened(mini_dlrm, parallel=parallel)
    task.train_until(mark(20000))
    assert math.isfinite(task.evaluate().metrics["AUC"])
