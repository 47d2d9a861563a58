"""What speech recognition's task does beyond the contract."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import needs
from tests.references.configs import rnnt
from tests.references.one_rank import OneOfSeveral, OneRank, in_threads
from tests.references.tasks import mark, same, weights
from train_bench.references.rnnt import data
from train_bench.references.rnnt.config import Config
from train_bench.references.rnnt.task import Task

GIB = 2**30
FSDD = needs.DATA / "fsdd"


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


@pytest.fixture
def tiny(mini_rnnt: Config) -> Config:
    """The mini benchmark with fewer units, some dropout and without warm-up."""
    mini_rnnt.model.encoder = mini_rnnt.model.joint = 16
    mini_rnnt.model.joint_dropout = 0.2
    mini_rnnt.warm_up_steps = 0
    mini_rnnt.hyperparameters.global_batch_size = 4
    mini_rnnt.hyperparameters.opt_learning_rate_warmup_epochs = 0
    return mini_rnnt


def test_a_skipped_step_holds_the_schedule_and_the_average_and_not_the_data(tiny: Config) -> None:
    class Overflowing(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            return super().step(clip_norm=clip_norm) and self.steps_taken != 1

    task = built(tiny, parallel=Overflowing())
    before = [weight.clone() for weight in task._average.parameters()]
    task.open_data()
    assert task.train_until(mark(4)).samples == 4 and task.optimizer_steps == 0
    assert same(before, list(task._average.parameters()))
    assert task.train_until(mark(16)).samples == 16 and task.optimizer_steps == 3
    assert not same(before, list(task._average.parameters()))
    task.close()


def test_micro_batches_of_the_same_utterances_change_nothing_but_rounding(tiny: Config) -> None:
    tiny.model.joint_dropout = 0.0
    ends = []
    for steps in (1, 2):
        tiny.hyperparameters.gradient_accumulation_steps = steps
        task = built(tiny)
        task.forward.train()
        whole = data.synthetic(tiny, 4)
        parts = [
            data.Batch(whole[0][:, first::steps], *(part[first::steps] for part in whole[1:]))
            for first in range(steps)
        ]
        for _ in range(3):
            task.train_step(iter(parts))
        ends.append(torch.cat([tensor.flatten() for tensor in weights(task)]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-4, rtol=1e-4)


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

    def one(parallel: OneOfSeveral) -> float:
        task = built(tiny, parallel=parallel)
        task.load(tmp_path)
        task.open_data()
        found = task.evaluate().metrics["WER"]
        task.close()
        return found

    assert all(heard)
    assert in_threads(ranks, one) == [pytest.approx(expected, abs=1e-12)] * ranks


@pytest.mark.parametrize(("batch", "whole"), [(1024, 278528), (2048, 278528), (3072, 276480)])
def test_an_epoch_has_whole_batches_and_leaves_out_the_rest(batch: int, whole: int) -> None:
    config = rnnt("rnnt", f"hyperparameters.global_batch_size={batch}")
    assert config.samples_per_epoch == whole


def test_the_averaged_weights_are_evaluated_and_start_as_the_weights_do(tiny: Config) -> None:
    task = built(tiny)
    assert same(weights(task), list(task._average.state_dict().values()))
    task.open_data()
    start = [weight.clone() for weight in task._average.parameters()]
    task.train_until(mark(4))
    factor = tiny.hyperparameters.model_eval_ema_factor
    for before, now, average in zip(start, task.model.parameters(), task._average.parameters(), strict=True):
        torch.testing.assert_close(average, factor * before + (1 - factor) * now.detach())
    heard = task.evaluate()
    with torch.no_grad():
        for weight in task.model.parameters():
            weight.zero_()
    assert task.evaluate() == heard
    task.close()


FULL_STEP = """
import math, torch
from tests.memory import peak_resident
from tests.references.configs import rnnt
from tests.references.one_rank import OneOfSeveral, OneRank, in_threads
from tests.references.tasks import mark, same, weights
from train_bench.references.rnnt import data
from train_bench.references.rnnt.task import Task
torch.set_num_threads(2)
one = ("hyperparameters.global_batch_size=1", "hyperparameters.gradient_accumulation_steps=1")
config = rnnt("rnnt", *one, "warm_up_steps=0")
task = Task(config)
task.build(1, OneRank())
assert len(task.initialized_tensors()) == 7
before = [weight.detach().clone() for weight in task.model.parameters()]
batch = data.synthetic(config, 1)
assert batch.features.shape == (556, 1, 240) and batch.labels.shape == (1, 84)
task.forward.train()
task.train_step(iter([batch]))
assert math.isfinite(float(task.last_loss))
after = list(task.model.parameters())
assert all(bool(torch.isfinite(weight).all()) for weight in after)
assert not any(torch.equal(one, other) for one, other in zip(before, after))
print(peak_resident())
"""


@pytest.mark.full
def test_a_step_of_the_full_network_on_the_longest_utterance_stays_below_4_gib() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FULL_STEP], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4 * GIB


@pytest.mark.full
@needs.shared(FSDD)
def test_a_task_trains_on_real_speech(tmp_path: Path) -> None:
    smaller = ("train_samples=320", "data.sha256=null", "model.encoder=16", "warm_up_steps=0")
    config = rnnt("rnnt_fsdd", f"data_dir={tmp_path}", *smaller)
    config.hyperparameters.opt_learning_rate_warmup_epochs = 0
    config.hyperparameters.opt_base_learning_rate = 0.03
    data.prepare(config, tmp_path, FSDD)
    task = built(config)
    facts = task.open_data()
    assert (facts.train_samples, facts.eval_samples) == (config.train_samples, config.eval_samples)
    assert facts.fingerprint is not None and facts.fingerprint.samples_in_common == 0
    assert len({word for _, _, texts in task._eval for text in texts for word in text.split()}) == 10
    losses = []
    for step in range(1, 21):
        task.train_until(mark(16 * step))
        losses.append(float(task.last_loss))
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert task.evaluate().metrics["WER"] >= 0.0
    task.close()


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini_rnnt: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip(needs.NO_GPU)
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = built(mini_rnnt, parallel=parallel)
    task.open_data()
    task.train_until(mark(40))
    assert math.isfinite(task.evaluate().metrics["WER"])
    task.close()
