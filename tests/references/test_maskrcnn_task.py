"""The contract of a Task, held by instance segmentation."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from tests import needs
from tests.references.configs import maskrcnn
from tests.references.one_rank import OneOfSeveral, OneRank, in_threads
from tests.references.tasks import mark
from train_bench.references.maskrcnn import data
from train_bench.references.maskrcnn.config import Config
from train_bench.references.maskrcnn.task import Task

NUCLEI = needs.DATA / "nuclei"


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


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


def test_gradients_of_micro_batches_are_averaged(tiny: Config) -> None:
    """Two equal micro-batches are the step of one of them: batch statistics, too, are those of each."""
    ends = []
    batch = data.synthetic(tiny, 2)
    for steps in (1, 2):
        tiny.hyperparameters.gradient_accumulation_steps = steps
        tiny.hyperparameters.opt_learning_rate_warmup_steps = 0
        task = built(tiny)
        task.forward.train()
        task.train_step(itertools.repeat(batch))
        ends.append(torch.cat([part.detach().flatten() for part in task.model.parameters()]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-6, rtol=1e-5)


def test_the_first_steps_have_the_rates_of_the_first_steps_of_the_reference(mini_maskrcnn: Config) -> None:
    """Slope 0.000625 over 80 steps to 0.05, counted from 1; biases come from twice the base."""
    mini_maskrcnn.warm_up_steps = 0
    task = built(mini_maskrcnn)
    for weights, biases in ((0.000625, 0.050625), (0.00125, 0.05125)):
        task.train_step(itertools.repeat(data.synthetic(mini_maskrcnn, 2)))
        rates = [group["lr"] for group in task.optimizer.param_groups]
        assert rates == pytest.approx([weights, biases])


@pytest.mark.full
def test_two_ranks_find_the_quality_that_one_finds(tiny: Config, trained: Path) -> None:
    alone = built(tiny)
    alone.load(trained)
    alone.open_data()
    expected = alone.evaluate().metrics
    alone.close()

    def found(parallel: OneOfSeveral) -> dict[str, float]:
        task = built(tiny, parallel=parallel)
        task.load(trained)
        task.open_data()
        metrics = task.evaluate().metrics
        task.close()
        return metrics

    assert expected.keys() == {"BBOX", "SEGM"} and all(0.0 < value < 1.0 for value in expected.values())
    assert in_threads(2, found)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.full
@needs.shared(NUCLEI)
def test_a_task_trains_on_real_images(tmp_path: Path) -> None:
    config = maskrcnn("maskrcnn_nuclei", f"data_dir={tmp_path}", "warm_up_steps=0")
    config.hyperparameters.global_batch_size = 2
    config.hyperparameters.opt_learning_rate_warmup_steps = 5
    config.hyperparameters.opt_learning_rate_warmup_factor = 0.004
    config.hyperparameters.opt_base_learning_rate = 0.02
    data.prepare(config, tmp_path, NUCLEI)
    task = built(config)
    facts = task.open_data()
    assert (facts.train_samples, facts.eval_samples) == (config.train_samples, config.eval_samples)
    assert facts.fingerprint is not None and facts.fingerprint.samples_in_common == 0
    losses = []
    for step in range(1, 13):
        task.train_until(mark(2 * step))
        losses.append(float(task.last_loss))
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
    task.close()


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini_maskrcnn: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip(needs.NO_GPU)
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = built(mini_maskrcnn, parallel=parallel)
    task.open_data()
    task.train_until(mark(40))
    assert not task.evaluate().diverged
    task.close()
