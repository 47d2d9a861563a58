"""The contract of a Task, held by image classification."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from tests import needs
from tests.references.configs import resnet
from tests.references.one_rank import OneRank
from tests.references.tasks import mark, same, weights
from train_bench.references.resnet import examples
from train_bench.references.resnet.config import Config
from train_bench.references.resnet.task import Task


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


def test_micro_batches_change_the_batch_norm_statistics_alone(mini: Config) -> None:
    mini.hyperparameters.gradient_accumulation_steps = 2
    task = built(mini)
    task.open_data()
    assert task.train_until(mark(128)).samples == 128
    assert task.parallel.steps_taken == 2
    task.close()


@pytest.mark.parametrize("name", ["resnet_mini", "lars"])
def test_the_warm_up_leaves_no_trace(mini: Config, name: str) -> None:
    if name == "lars":
        full = resnet("resnet").hyperparameters
        full.global_batch_size = 64
        mini.hyperparameters = full
    ends = []
    for steps in (0, 3):
        mini.warm_up_steps = steps
        parallel = OneRank()
        task = built(mini, parallel=parallel)
        assert parallel.steps_taken == 0 and task.optimizer.state_dict()["state"] == {}
        generators = (torch.rand(1).item(), np.random.random(), random.random())
        task.open_data()
        task.train_until(mark(128))
        ends.append((weights(task), generators[0]))
        task.close()
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_ranks_evaluate_disjoint_parts_of_the_evaluation_set(mini: Config) -> None:
    seen = []
    for rank in range(2):
        task = built(mini, parallel=OneRank(rank=rank, size=2))
        task.open_data()
        counts = sum(task._count(batch) for batch in task._eval)
        seen.append(int(counts[1]))
        task.close()
    assert seen == [450, 450]


def test_batch_norm_spans_as_many_ranks_as_its_samples_need(mini: Config) -> None:
    spans = []

    class Listening(OneRank):
        def batch_norm(self, model, *, ranks):
            spans.append(ranks)
            return model

    for span in (None, 8, 16, 32, 640):
        mini.hyperparameters.model_bn_span = span
        built(mini, parallel=Listening(size=4))
    assert spans == [1, 1, 1, 2, 4]


@pytest.mark.parametrize(
    ("span", "ranks", "expected"), [(None, 1, 64), (None, 2, 32), (32, 4, 32), (8, 4, 16)]
)
def test_the_plan_is_told_the_batch_norm_span_that_will_hold(
    mini: Config, span: int | None, ranks: int, expected: int
) -> None:
    mini.hyperparameters.model_bn_span = span
    assert mini.for_ranks(ranks).hyperparameters.model_bn_span == expected
    assert mini.hyperparameters.model_bn_span == span


@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet", "resnet_sgd"])
def test_full_resnet50_takes_a_step_on_two_small_images(name: str) -> None:
    config = resnet(
        name, "hyperparameters.global_batch_size=2", "data.image_size=64", "warm_up_steps=0", "data.workers=0"
    )
    config.train_samples = 2
    config.hyperparameters.lars_opt_learning_rate_warmup_epochs = 0 if name == "resnet" else None
    config.hyperparameters.opt_learning_rate_warmup_epochs = None if name == "resnet" else 0
    task = built(config)
    before = weights(task)
    task.forward.train()
    task.train_step(iter([examples.synthetic(config, 2)]))
    assert math.isfinite(float(task.last_loss))
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(task))
    assert not same(before, weights(task))
    assert len(task.initialized_tensors()) == 161


@pytest.mark.full
def test_a_compiled_task_keeps_its_tensor_names(mini: Config) -> None:
    mini.compile = True
    with torch.compiler.set_stance("force_eager"):
        task = built(mini)
    assert next(iter(task.model.state_dict())) == "conv0.weight"


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip(needs.NO_GPU)
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = built(mini, parallel=parallel)
    task.open_data()
    task.train_until(mark(mini.train_samples))
    assert math.isfinite(task.evaluate().metrics["top1"])
    task.close()
