"""The contract of a Task, held by speech recognition."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from references.rnnt import data
from references.rnnt.config import Config
from references.rnnt.task import Task
from tests.references.configs import rnnt
from tests.references.one_rank import OneRank
from train_bench.errors import RequestError
from train_bench.progress import Mark

GIB = 2**30
FSDD = Path(__file__).parents[3] / "shared" / "data" / "fsdd"


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
def tiny(mini_rnnt: Config) -> Config:
    """The mini benchmark with fewer units, some dropout and without warm-up."""
    mini_rnnt.model.encoder = mini_rnnt.model.joint = 16
    mini_rnnt.model.joint_dropout = 0.2
    mini_rnnt.warm_up_steps = 0
    mini_rnnt.hyperparameters.global_batch_size = 4
    mini_rnnt.hyperparameters.opt_learning_rate_warmup_epochs = 0
    return mini_rnnt


LISTENER = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from tests.references.configs import rnnt
from tests.references.one_rank import OneRank
from references.rnnt.task import Task
config = rnnt("rnnt_mini", "data_dir=" + sys.argv[1])
task = Task(config)
task.build(1, OneRank())
touched = [name for name in opened if name.startswith(sys.argv[1])]
assert not touched, touched
assert not {"soundfile", "sentencepiece"} & set(sys.modules)
task.open_data()
assert any(name.startswith(sys.argv[1]) for name in opened)
"""


def test_building_touches_no_data(letters_folder: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LISTENER, str(letters_folder)], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_opening_the_data_announces_their_sizes(tiny: Config) -> None:
    task = built(tiny)
    assert task.open_data() == data.facts(tiny)
    task.close()


def test_training_twice_advances_by_whole_batches(tiny: Config) -> None:
    task = built(tiny)
    task.open_data()
    assert task.train_until(mark(6)).samples == 8
    first = weights(task)
    assert task.train_until(mark(9)).samples == 12
    assert task.train_until(mark(12)).samples == 12
    assert not same(first, weights(task))
    task.close()


def test_a_skipped_step_holds_the_schedule_and_the_average_and_not_the_data(tiny: Config) -> None:
    class Overflowing(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            return super().step(clip_norm=clip_norm) and self.steps_taken != 1

    task = built(tiny, parallel=Overflowing())
    before = [weight.clone() for weight in task._average.parameters()]
    task.open_data()
    assert task.train_until(mark(4)).samples == 4 and task._step == 0
    assert same(before, list(task._average.parameters()))
    assert task.train_until(mark(16)).samples == 16 and task._step == 3
    assert not same(before, list(task._average.parameters()))
    task.close()


def test_the_loss_falls_on_synthetic_batches(tiny: Config) -> None:
    task = built(tiny)
    batch = data.synthetic(tiny, 4)
    task._forward.train()
    losses = []
    for _ in range(25):
        task._train_step(iter([batch]))
        losses.append(float(task._last_loss))
    assert losses[-1] < 0.9 * losses[0]


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(tiny: Config) -> None:
    ends = []
    for seed in (1, 1, 2):
        task = built(tiny, seed)
        task.open_data()
        task.train_until(mark(12))
        ends.append((weights(task), task.evaluate().metrics["WER"]))
        task.close()
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]
    assert not same(ends[0][0], ends[2][0])


def test_micro_batches_of_the_same_utterances_change_nothing_but_rounding(tiny: Config) -> None:
    tiny.model.joint_dropout = 0.0
    ends = []
    for steps in (1, 2):
        tiny.hyperparameters.gradient_accumulation_steps = steps
        task = built(tiny)
        task._forward.train()
        whole = data.synthetic(tiny, 4)
        parts = [
            data.Batch(whole[0][:, first::steps], *(part[first::steps] for part in whole[1:]))
            for first in range(steps)
        ]
        for _ in range(3):
            task._train_step(iter(parts))
        ends.append(torch.cat([tensor.flatten() for tensor in weights(task)]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-4, rtol=1e-4)


def test_the_warm_up_leaves_no_trace(tiny: Config) -> None:
    ends = []
    for steps in (0, 2):
        tiny.warm_up_steps = steps
        parallel = OneRank()
        task = built(tiny, parallel=parallel)
        assert parallel.steps_taken == 0 and task._optimizer.state_dict()["state"] == {}
        generator = torch.rand(1).item()
        task.open_data()
        task.train_until(mark(8))
        ends.append((weights(task), generator))
        task.close()
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_an_evaluation_changes_nothing_that_training_sees(tiny: Config) -> None:
    ends = []
    for looks in (0, 1):
        task = built(tiny)
        task.open_data()
        task.train_until(mark(8))
        for _ in range(looks):
            task.evaluate()
        task.train_until(mark(16))
        ends.append(weights(task))
        task.close()
    assert same(*ends)


def test_a_saved_run_continues_identically(tiny: Config, tmp_path: Path) -> None:
    straight = built(tiny)
    straight.open_data()
    straight.train_until(mark(12))
    straight.save(tmp_path)
    straight.train_until(mark(24))
    for opened_first in (True, False):
        resumed = built(tiny, seed=99)
        if opened_first:
            resumed.open_data()
        resumed.load(tmp_path)
        if not opened_first:
            resumed.open_data()
        assert resumed.train_until(mark(24)).samples == 24
        assert same(weights(straight), weights(resumed))
        assert resumed.evaluate() == straight.evaluate()
        resumed.close()
    straight.close()


class Meeting:
    """Where ranks that are threads of this process add up their tensors."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.brought: dict[int, torch.Tensor] = {}

    def sum(self, rank: int, value: torch.Tensor) -> torch.Tensor:
        self.brought[rank] = value
        self.barrier.wait()
        total = torch.stack(list(self.brought.values())).sum(dim=0)
        self.barrier.wait()
        return total


class OneOfSeveral(OneRank):
    def __init__(self, meeting: Meeting, *, rank: int, size: int) -> None:
        super().__init__(rank=rank, size=size)
        self.meeting = meeting

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return self.meeting.sum(self.rank, value)


@pytest.mark.parametrize("ranks", [2, 3])
def test_several_ranks_find_the_quality_that_one_finds(tiny: Config, tmp_path: Path, ranks: int) -> None:
    """With weights that never say blank, so that there is something to count."""
    tiny.hyperparameters.global_batch_size = 12
    alone = built(tiny)
    alone.open_data()
    with torch.no_grad():
        alone._average.joint_net.weight.mul_(8)
        alone._average.joint_net.bias[-1] -= 100
    alone.save(tmp_path)
    expected = alone.evaluate().metrics["WER"]
    features, frame_counts, _ = next(iter(alone._eval))
    heard = alone._decoded(features, frame_counts)
    alone.close()
    meeting = Meeting(ranks)
    found: dict[int, Any] = {}

    def one(rank: int) -> None:
        task = built(tiny, parallel=OneOfSeveral(meeting, rank=rank, size=ranks))
        task.load(tmp_path)
        task.open_data()
        found[rank] = task.evaluate().metrics["WER"]
        task.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(heard)
    assert found == {rank: pytest.approx(expected, abs=1e-12) for rank in range(ranks)}


def test_a_diverged_run_reports_not_a_number(tiny: Config) -> None:
    task = built(tiny)
    task.open_data()
    assert math.isfinite(task.evaluate().metrics["WER"])
    with torch.no_grad():
        next(task._average.parameters()).fill_(math.nan)
    assert task.evaluate().diverged
    task.close()


def test_a_batch_that_ranks_cannot_share_is_refused(tiny: Config) -> None:
    tiny.hyperparameters.global_batch_size = 4
    with pytest.raises(RequestError, match="global_batch_size 4 cannot be divided among 3 ranks"):
        built(tiny, parallel=OneRank(size=3))


@pytest.mark.parametrize(("batch", "whole"), [(1024, 278528), (2048, 278528), (3072, 276480)])
def test_an_epoch_has_whole_batches_and_leaves_out_the_rest(batch: int, whole: int) -> None:
    config = rnnt("rnnt", f"hyperparameters.global_batch_size={batch}")
    assert config.samples_per_epoch == whole and data.facts(config).train_samples == whole


def test_the_averaged_weights_are_evaluated_and_start_as_the_weights_do(tiny: Config) -> None:
    task = built(tiny)
    assert same(weights(task), list(task._average.state_dict().values()))
    task.open_data()
    start = [weight.clone() for weight in task._average.parameters()]
    task.train_until(mark(4))
    factor = tiny.hyperparameters.model_eval_ema_factor
    for before, now, average in zip(start, task._model.parameters(), task._average.parameters(), strict=True):
        torch.testing.assert_close(average, factor * before + (1 - factor) * now.detach())
    heard = task.evaluate()
    with torch.no_grad():
        for weight in task._model.parameters():
            weight.zero_()
    assert task.evaluate() == heard
    task.close()


FULL_STEP = """
import math, resource, torch
from tests.references.configs import rnnt
from tests.references.one_rank import OneRank
from references.rnnt import data
from references.rnnt.task import Task
torch.set_num_threads(2)
one = ("hyperparameters.global_batch_size=1", "hyperparameters.gradient_accumulation_steps=1")
config = rnnt("rnnt", *one, "warm_up_steps=0")
task = Task(config)
task.build(1, OneRank())
assert len(task.initialized_tensors()) == 7
before = [weight.detach().clone() for weight in task._model.parameters()]
batch = data.synthetic(config, 1)
assert batch.features.shape == (556, 1, 240) and batch.labels.shape == (1, 84)
task._forward.train()
task._train_step(iter([batch]))
assert math.isfinite(float(task._last_loss))
after = list(task._model.parameters())
assert all(bool(torch.isfinite(weight).all()) for weight in after)
assert not any(torch.equal(one, other) for one, other in zip(before, after))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_a_step_of_the_full_network_on_the_longest_utterance_stays_below_4_gib() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FULL_STEP], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4 * GIB


@pytest.mark.skipif(not FSDD.is_dir(), reason="no spoken digits beside the checkout")
def test_a_task_trains_on_real_speech(tmp_path: Path) -> None:
    config = rnnt(
        "rnnt_fsdd", f"data_dir={tmp_path}", "train_samples=320", "model.encoder=16", "warm_up_steps=0"
    )
    config.hyperparameters.opt_learning_rate_warmup_epochs = 0
    config.hyperparameters.opt_base_learning_rate = 0.03
    data.prepare(config, tmp_path, FSDD)
    task = built(config)
    assert task.open_data() == data.facts(config)
    assert len({word for _, _, texts in task._eval for text in texts for word in text.split()}) == 10
    losses = []
    for step in range(1, 21):
        task.train_until(mark(16 * step))
        losses.append(float(task._last_loss))
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert task.evaluate().metrics["WER"] >= 0.0
    task.close()


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini_rnnt: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = built(mini_rnnt, parallel=parallel)
    task.open_data()
    task.train_until(mark(40))
    assert math.isfinite(task.evaluate().metrics["WER"])
    task.close()
