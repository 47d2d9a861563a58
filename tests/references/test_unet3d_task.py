"""The contract of a Task, held by medical image segmentation."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import needs
from tests.references.configs import unet3d
from tests.references.one_rank import OneOfSeveral, OneRank, in_threads
from tests.references.tasks import mark, weights
from train_bench.errors import RequestError
from train_bench.references.unet3d import data
from train_bench.references.unet3d.config import Config
from train_bench.references.unet3d.task import Task

GIB = 2**30
HIPPOCAMPUS = needs.DATA / "hippocampus"


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


@pytest.fixture
def tiny(mini_unet3d: Config) -> Config:
    """The mini benchmark with fewer channels and without warm-up."""
    mini_unet3d.model.channels = [4, 8]
    mini_unet3d.warm_up_steps = 0
    return mini_unet3d


def test_micro_batches_change_nothing_but_rounding(tiny: Config) -> None:
    """Instance norm and both losses look at one sample at a time."""
    ends = []
    for steps in (1, 2):
        tiny.hyperparameters.gradient_accumulation_steps = steps
        task = built(tiny)
        task.open_data()
        task.train_until(mark(3 * tiny.hyperparameters.global_batch_size))
        ends.append(torch.cat([tensor.flatten() for tensor in weights(task)]))
        task.close()
    torch.testing.assert_close(ends[0], ends[1], atol=1e-4, rtol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 3])
def test_several_ranks_find_the_quality_that_one_finds(tiny: Config, tmp_path: Path, ranks: int) -> None:
    tiny.hyperparameters.global_batch_size = 6
    alone = built(tiny)
    alone.open_data()
    alone.train_until(mark(60))
    alone.save(tmp_path)
    expected = alone.evaluate().metrics["DICE"]
    alone.close()

    def found(parallel: OneOfSeveral) -> float:
        task = built(tiny, parallel=parallel)
        task.load(tmp_path)
        task.open_data()
        metric = task.evaluate().metrics["DICE"]
        task.close()
        return metric

    assert 0.0 < expected < 1.0
    assert in_threads(ranks, found) == [pytest.approx(expected, abs=1e-12)] * ranks


@pytest.mark.parametrize("shape", [[20, 20, 18], [20, 20], [4, 20, 20]])
def test_a_shape_that_the_network_cannot_halve_is_refused(mini_unet3d: Config, shape: list[int]) -> None:
    mini_unet3d.hyperparameters.validation_input_shape = shape
    with pytest.raises(RequestError, match=r"validation_input_shape is .* three multiples of 4"):
        built(mini_unet3d)


def test_an_overlap_of_whole_windows_is_refused(mini_unet3d: Config) -> None:
    mini_unet3d.hyperparameters.validation_overlap = 1.0
    with pytest.raises(RequestError, match=r"validation_overlap is 1\.0"):
        built(mini_unet3d)


@pytest.mark.parametrize(("batch", "padded"), [(2, 168), (32, 192), (56, 168), (80, 240), (84, 168)])
def test_an_epoch_is_padded_to_whole_batches(batch: int, padded: int) -> None:
    config = unet3d("unet3d", f"hyperparameters.global_batch_size={batch}").for_ranks(1)
    assert config.samples_per_epoch == config.hyperparameters.samples_per_epoch == padded


FULL_STEP = """
import math, torch
from tests.memory import peak_resident
from tests.references.configs import unet3d
from tests.references.one_rank import OneOfSeveral, OneRank, in_threads
from train_bench.references.unet3d import data
from train_bench.references.unet3d.task import Task
torch.set_num_threads(2)
config = unet3d("unet3d", "hyperparameters.global_batch_size=1", "warm_up_steps=0")
task = Task(config)
task.build(1, OneRank())
assert len(task.initialized_tensors()) == 50
before = [weight.detach().clone() for weight in task.model.parameters()]
task.train_step(iter([data.synthetic(config, 1)]))
assert math.isfinite(float(task.last_loss))
after = list(task.model.parameters())
assert all(bool(torch.isfinite(weight).all()) for weight in after)
assert not any(torch.equal(one, other) for one, other in zip(before, after) if one.dim() > 1)
print(peak_resident())
"""


@pytest.mark.full
def test_a_step_of_the_full_network_at_128_voxels_stays_below_8_gib() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FULL_STEP], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 8 * GIB


@pytest.mark.full
@needs.shared(HIPPOCAMPUS)
def test_a_task_trains_on_real_volumes(tmp_path: Path) -> None:
    config = unet3d("unet3d_hippocampus", f"data_dir={tmp_path}", "model.channels=[4,8]", "warm_up_steps=0")
    config.hyperparameters.opt_learning_rate_warmup_epochs = 0
    data.prepare(config, tmp_path, HIPPOCAMPUS)
    task = built(config)
    facts = task.open_data()
    assert (facts.train_samples, facts.eval_samples) == (config.train_samples, config.eval_samples)
    assert facts.fingerprint is not None and facts.fingerprint.samples_in_common == 0
    losses = []
    for step in range(1, 21):
        task.train_until(mark(2 * step))
        losses.append(float(task.last_loss))
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert 0.0 <= task.evaluate().metrics["DICE"] <= 1.0
    task.close()


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini_unet3d: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip(needs.NO_GPU)
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = built(mini_unet3d, parallel=parallel)
    task.open_data()
    task.train_until(mark(40))
    assert math.isfinite(task.evaluate().metrics["DICE"])
    task.close()
