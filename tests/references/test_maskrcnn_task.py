"""The contract of a Task, held by instance segmentation."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from references.maskrcnn import data
from references.maskrcnn.config import Config
from references.maskrcnn.task import Task
from tests.references.configs import maskrcnn
from tests.references.one_rank import OneRank
from train_bench.errors import RequestError
from train_bench.progress import Mark

NUCLEI = Path(__file__).parents[3] / "shared" / "data" / "nuclei"


def mark(samples: int) -> Mark:
    return Mark(count=samples, epoch_num=1, first_epoch_num=1, epoch_count=1)


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


def weights(task: Task) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in task._model.state_dict().values()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture
def tiny(mini_maskrcnn: Config) -> Config:
    """The mini benchmark with small batches and without warm-up."""
    mini_maskrcnn.warm_up_steps = 0
    mini_maskrcnn.hyperparameters.global_batch_size = 4
    return mini_maskrcnn


@pytest.fixture(scope="module")
def trained(silhouettes_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after 70 steps."""
    config = maskrcnn(
        "maskrcnn_mini", f"data_dir={silhouettes_folder}", "hyperparameters.global_batch_size=6"
    )
    task = built(config)
    task.open_data()
    task.train_until(mark(70 * 6))
    folder = tmp_path_factory.mktemp("checkpoint")
    task.save(folder)
    task.close()
    return folder


LISTENER = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from tests.references.configs import maskrcnn
from tests.references.one_rank import OneRank
from references.maskrcnn.task import Task
task = Task(maskrcnn("maskrcnn_mini", "data_dir=" + sys.argv[1]))
task.build(1, OneRank())
touched = [name for name in opened if name.startswith(sys.argv[1])]
assert not touched, touched
task.open_data()
assert any(name.startswith(sys.argv[1]) for name in opened)
"""


def test_building_touches_no_data(silhouettes_folder: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LISTENER, str(silhouettes_folder)], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_training_advances_by_whole_batches(tiny: Config) -> None:
    task = built(tiny)
    assert task.open_data() == data.facts(tiny)
    assert task.train_until(mark(6)).samples == 8
    first = weights(task)
    assert task.train_until(mark(9)).samples == 12
    assert task.train_until(mark(12)).samples == 12
    assert not same(first, weights(task))
    task.close()


def test_a_skipped_step_holds_the_schedule_and_not_the_data(tiny: Config) -> None:
    class Overflowing(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            return super().step(clip_norm=clip_norm) and self.steps_taken != 1

    task = built(tiny, parallel=Overflowing())
    task.open_data()
    assert task.train_until(mark(12)).samples == 12
    assert task._step == 2
    task.close()


def test_the_loss_falls_on_synthetic_batches(tiny: Config) -> None:
    tiny.hyperparameters.opt_learning_rate_warmup_steps = 0
    tiny.hyperparameters.opt_base_learning_rate = 0.01
    task = built(tiny)
    batch = data.synthetic(tiny, 4)
    task._forward.train()
    losses = []
    for _ in range(20):
        task._train_step(iter([batch]))
        losses.append(float(task._last_loss))
    assert losses[-1] < 0.6 * losses[0]


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(tiny: Config) -> None:
    ends = []
    for seed in (1, 1, 2):
        task = built(tiny, seed)
        task.open_data()
        task.train_until(mark(12))
        ends.append(weights(task))
        task.close()
    assert same(ends[0], ends[1]) and not same(ends[0], ends[2])


def test_neither_the_warm_up_nor_an_evaluation_leaves_a_trace(tiny: Config) -> None:
    ends = []
    for steps, looks in ((0, 0), (2, 1)):
        tiny.warm_up_steps = steps
        parallel = OneRank()
        task = built(tiny, parallel=parallel)
        assert parallel.steps_taken == 0 and task._optimizer.state_dict()["state"] == {}
        drawn = torch.rand(1).item()
        task.open_data()
        task.train_until(mark(8))
        for _ in range(looks):
            task.evaluate()
        task.train_until(mark(16))
        ends.append((weights(task), drawn))
        task.close()
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_gradients_of_micro_batches_are_averaged(tiny: Config) -> None:
    """Two equal micro-batches are the step of one of them: batch statistics, too, are those of each."""
    ends = []
    batch = data.synthetic(tiny, 2)
    for steps in (1, 2):
        tiny.hyperparameters.gradient_accumulation_steps = steps
        tiny.hyperparameters.opt_learning_rate_warmup_steps = 0
        task = built(tiny)
        task._forward.train()
        task._train_step(itertools.repeat(batch))
        ends.append(torch.cat([part.detach().flatten() for part in task._model.parameters()]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-6, rtol=1e-5)


def test_a_saved_run_continues_identically(tiny: Config, tmp_path: Path) -> None:
    straight = built(tiny)
    straight.open_data()
    straight.train_until(mark(12))
    straight.save(tmp_path)
    straight.train_until(mark(20))
    for opened_first in (True, False):
        resumed = built(tiny, seed=99)
        if opened_first:
            resumed.open_data()
        resumed.load(tmp_path)
        if not opened_first:
            resumed.open_data()
        assert resumed.train_until(mark(20)).samples == 20
        assert same(weights(straight), weights(resumed))
        resumed.close()
    straight.close()


class Meeting:
    """Where ranks that are threads of this process add up their tensors and gather what they found."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.brought: dict[int, Any] = {}

    def all(self, rank: int, value: Any) -> list[Any]:
        self.brought[rank] = value
        self.barrier.wait()
        every = [self.brought[each] for each in sorted(self.brought)]
        self.barrier.wait()
        return every


class OneOfSeveral(OneRank):
    def __init__(self, meeting: Meeting, *, rank: int, size: int) -> None:
        super().__init__(rank=rank, size=size)
        self.meeting = meeting

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return torch.stack(self.meeting.all(self.rank, value)).sum(dim=0)

    def gather_objects(self, value: Any) -> list[Any] | None:
        every = self.meeting.all(self.rank, value)
        return every if self.rank == 0 else None


def test_two_ranks_find_the_quality_that_one_finds(tiny: Config, trained: Path) -> None:
    alone = built(tiny)
    alone.load(trained)
    alone.open_data()
    expected = alone.evaluate().metrics
    alone.close()
    meeting = Meeting(2)
    found: dict[int, Any] = {}

    def one(rank: int) -> None:
        task = built(tiny, parallel=OneOfSeveral(meeting, rank=rank, size=2))
        task.load(trained)
        task.open_data()
        found[rank] = task.evaluate().metrics
        task.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert expected.keys() == {"BBOX", "SEGM"} and all(0.0 < value < 1.0 for value in expected.values())
    assert found[0] == pytest.approx(expected, abs=1e-6)


def test_a_diverged_run_reports_not_a_number(tiny: Config) -> None:
    task = built(tiny)
    task.open_data()
    assert not task.evaluate().diverged
    with torch.no_grad():
        next(task._model.parameters()).fill_(math.nan)
    task.train_until(mark(4))
    assert task.evaluate().diverged
    task.close()


def test_a_batch_that_ranks_cannot_share_is_refused(tiny: Config) -> None:
    with pytest.raises(RequestError, match="global_batch_size 4 cannot be divided among 3 ranks"):
        built(tiny, parallel=OneRank(size=3))


def test_compilation_is_refused_rather_than_ignored(tiny: Config) -> None:
    tiny.compile = True
    with pytest.raises(RequestError, match=r"Leave out benchmark\.compile=true"):
        built(tiny)


@pytest.mark.skipif(not NUCLEI.is_dir(), reason="no images of nuclei beside the checkout")
def test_a_task_trains_on_real_images(tmp_path: Path) -> None:
    config = maskrcnn("maskrcnn_nuclei", f"data_dir={tmp_path}", "warm_up_steps=0")
    config.hyperparameters.global_batch_size = 2
    config.hyperparameters.opt_learning_rate_warmup_steps = 5
    config.hyperparameters.opt_learning_rate_warmup_factor = 0.004
    config.hyperparameters.opt_base_learning_rate = 0.02
    data.prepare(config, tmp_path, NUCLEI)
    task = built(config)
    assert task.open_data() == data.facts(config)
    losses = []
    for step in range(1, 13):
        task.train_until(mark(2 * step))
        losses.append(float(task._last_loss))
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
    task.close()


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini_maskrcnn: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = built(mini_maskrcnn, parallel=parallel)
    task.open_data()
    task.train_until(mark(40))
    assert not task.evaluate().diverged
    task.close()
