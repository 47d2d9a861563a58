"""The contract of a Task, held by recommendation."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from references.dlrm import data
from references.dlrm.config import Config
from references.dlrm.task import Task
from tests.references.configs import dlrm
from tests.references.one_rank import OneRank
from tests.references.several_ranks import FromFile, start
from train_bench.errors import RequestError
from train_bench.parallel import Parallel
from train_bench.progress import Mark

ADULT = Path(__file__).parents[3] / "shared" / "data" / "adult"


def mark(samples: int) -> Mark:
    return Mark(count=samples, epoch_num=1, first_epoch_num=1, epoch_count=1)


def built(config: Config, seed: int = 1, parallel: Parallel | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


def opened(config: Config, seed: int = 1, parallel: Parallel | None = None) -> Task:
    task = built(config, seed, parallel)
    task.open_data()
    return task


def weights(task: Task) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in task._model.state_dict().values()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture
def tiny(mini_dlrm: Config) -> Config:
    """The mini benchmark without warm-up, at its full rate from the first step."""
    mini_dlrm.warm_up_steps = 0
    mini_dlrm.hyperparameters.opt_learning_rate_warmup_steps = 0
    return mini_dlrm


LISTENER = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from tests.references.configs import dlrm
from tests.references.one_rank import OneRank
from references.dlrm.task import Task
task = Task(dlrm("dlrm_mini", "data_dir=" + sys.argv[1]))
task.build(1, OneRank())
touched = [name for name in opened if name.startswith(sys.argv[1])]
assert not touched, touched
task.open_data()
assert any(name.startswith(sys.argv[1]) for name in opened)
"""


def test_building_touches_no_data(clicks_folder: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LISTENER, str(clicks_folder)], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_opening_the_data_announces_their_sizes(tiny: Config) -> None:
    assert built(tiny).open_data() == data.facts(tiny)


def test_training_stops_at_whole_batches_inside_an_epoch(tiny: Config) -> None:
    task = opened(tiny)
    assert task.train_until(mark(20000)).samples == 79 * 256
    first = weights(task)
    assert task.train_until(mark(20224)).samples == 20224
    assert same(first, weights(task))
    assert task.train_until(mark(20225)).samples == 80 * 256
    assert not same(first, weights(task))


def test_a_skipped_step_holds_the_schedule_and_not_the_data(tiny: Config) -> None:
    class Overflowing(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            return super().step(clip_norm=clip_norm) and self.steps_taken != 1

    task = opened(tiny, parallel=Overflowing())
    assert task.train_until(mark(4 * 256)).samples == 4 * 256
    assert task._step == 3


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(tiny: Config) -> None:
    ends = []
    for seed in (1, 1, 2):
        task = opened(tiny, seed)
        task.train_until(mark(5000))
        ends.append((weights(task), task.evaluate().metrics["AUC"]))
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]
    assert not same(ends[0][0], ends[2][0])


def test_micro_batches_change_nothing_but_rounding(tiny: Config) -> None:
    ends = []
    for steps in (1, 4):
        tiny.hyperparameters.gradient_accumulation_steps = steps
        task = opened(tiny)
        task.train_until(mark(5 * 256))
        ends.append(torch.cat([tensor.flatten() for tensor in weights(task)]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-5, rtol=1e-4)


def test_the_warm_up_leaves_no_trace(tiny: Config) -> None:
    ends = []
    for steps in (0, 2):
        tiny.warm_up_steps = steps
        parallel = OneRank()
        task = built(tiny, parallel=parallel)
        assert parallel.steps_taken == 0
        generator = torch.rand(1).item()
        task.open_data()
        task.train_until(mark(2000))
        ends.append((weights(task), generator))
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_an_evaluation_changes_nothing_that_training_sees(tiny: Config) -> None:
    ends = []
    for looks in (0, 1):
        task = opened(tiny)
        task.train_until(mark(2000))
        for _ in range(looks):
            task.evaluate()
        task.train_until(mark(4000))
        ends.append(weights(task))
    assert same(*ends)


def test_a_saved_run_continues_identically(tiny: Config, tmp_path: Path) -> None:
    straight = opened(tiny)
    straight.train_until(mark(2000))
    straight.save(tmp_path)
    straight.train_until(mark(3000))
    straight.save(tmp_path)
    assert len(list(tmp_path.glob("table_*.pt"))) == len(tiny.model.rows)
    straight.train_until(mark(5000))
    for opened_first in (True, False):
        resumed = built(tiny, seed=99)
        if opened_first:
            resumed.open_data()
        resumed.load(tmp_path)
        if not opened_first:
            resumed.open_data()
        assert resumed.train_until(mark(5000)).samples == 20 * 256
        assert same(weights(straight), weights(resumed))


def _second_of_two(rank: int, folder: Path, config: Config) -> None:
    """Evaluate what one rank has saved, train on, evaluate and save."""
    parallel = FromFile(folder, rank=rank, size=2)
    task = opened(config, seed=99, parallel=parallel)
    assert 0 < len(task._model.tables.weights) < len(config.model.rows)
    task.load(folder)
    found = [task.evaluate().metrics["AUC"]]
    task.train_until(mark(10000))
    found.append(task.evaluate().metrics["AUC"])
    task.save(folder / "both")
    torch.save(found, folder / f"found_{rank}.pt")
    parallel.leave()


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


def test_a_diverged_run_reports_not_a_number(tiny: Config) -> None:
    task = opened(tiny)
    assert math.isfinite(task.evaluate().metrics["AUC"])
    with torch.no_grad():
        task._model.dense.last.bias.fill_(math.nan)
    assert task.evaluate().diverged


def test_what_cannot_be_trained_is_refused(tiny: Config) -> None:
    with pytest.raises(RequestError, match="global_batch_size 256 cannot be divided among 3 ranks"):
        built(tiny, parallel=OneRank(size=3))
    for overrides, reason in (
        (["lr_decay_start_steps=9", "opt_learning_rate_warmup_steps=10"], "the warm-up has to end before"),
        (["sgd_opt_base_learning_rate=3"], "the decay starts at opt_base_learning_rate, 1"),
    ):
        refused = dlrm("dlrm_mini", *(f"hyperparameters.{text}" for text in overrides)).refuse()
        assert refused is not None and reason in refused
    assert dlrm("dlrm_mini").refuse() is None


def test_a_step_with_the_tables_of_the_full_benchmark_cut_to_a_thousand_rows() -> None:
    config = dlrm("dlrm", "model.max_table_rows=1000", "hyperparameters.global_batch_size=64")
    config.warm_up_steps = 0
    task = built(config)
    assert len(task.initialized_tensors()) == 9
    assert sum(len(table) for table in task._model.tables.weights.values()) == sum(config.model.rows)
    before = weights(task)
    task._train_step(iter([data.synthetic(config, 64)]))
    assert math.isfinite(float(task._last_loss))
    changed = [not torch.equal(one, other) for one, other in zip(before, weights(task), strict=True)]
    assert all(changed)


@pytest.mark.skipif(not ADULT.is_dir(), reason="no census beside the checkout")
def test_a_task_trains_on_the_census(tmp_path: Path) -> None:
    config = dlrm("dlrm_adult", f"data_dir={tmp_path}", "warm_up_steps=0")
    data.prepare(config, tmp_path, ADULT)
    task = opened(config)
    untrained = task.evaluate().metrics["AUC"]
    task.train_until(mark(16000))
    assert task.evaluate().metrics["AUC"] > max(untrained, 0.75)


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini_dlrm: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = opened(mini_dlrm, parallel=parallel)
    task.train_until(mark(20000))
    assert math.isfinite(task.evaluate().metrics["AUC"])
