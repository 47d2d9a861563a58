"""The contract of a Task, held by image classification."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from references._parts.warm_up import without_trace
from references.resnet import data
from references.resnet.config import Config
from references.resnet.task import Task
from tests.references.configs import resnet
from tests.references.one_rank import OneRank
from train_bench.errors import RequestError
from train_bench.progress import Mark


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


LISTENER = """
import sys, pathlib
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from tests.references.configs import resnet
from tests.references.one_rank import OneRank
from references.resnet.task import Task
config = resnet("resnet_mini", "data_dir=" + sys.argv[1])
task = Task(config)
task.build(1, OneRank())
touched = [name for name in opened if name.startswith(sys.argv[1])]
assert not touched, touched
assert "sklearn" not in sys.modules
task.open_data()
assert any(name.startswith(sys.argv[1]) for name in opened)
"""


def test_building_touches_no_data(digits_folder: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LISTENER, str(digits_folder)], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_opening_the_data_announces_their_sizes(mini: Config) -> None:
    task = built(mini)
    found = task.open_data()
    assert found == data.facts(mini)
    assert (found.train_samples, found.eval_samples) == (897, 900)
    task.close()


def test_training_twice_advances_by_whole_batches(mini: Config) -> None:
    task = built(mini)
    task.open_data()
    assert task.train_until(mark(100)).samples == 128
    first = weights(task)
    assert task.train_until(mark(129)).samples == 192
    assert task.train_until(mark(192)).samples == 192
    assert not same(first, weights(task))
    task.close()


def test_a_skipped_step_holds_the_schedule_and_not_the_data(mini: Config) -> None:
    class Overflowing(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            return super().step(clip_norm=clip_norm) and self.steps_taken != 1

    mini.warm_up_steps = 0
    task = built(mini, parallel=Overflowing())
    task.open_data()
    assert task.train_until(mark(256)).samples == 256
    assert task._step == 3
    task.close()


def test_the_loss_falls_on_synthetic_batches(mini: Config) -> None:
    mini.hyperparameters.opt_learning_rate_warmup_epochs = 0
    task = built(mini)
    batch = data.synthetic(mini, 64)
    task._forward.train()
    losses = []
    for _ in range(12):
        task._train_step(iter([batch]))
        losses.append(float(task._last_loss))
    assert losses[-1] < 0.7 * losses[0]


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(mini: Config) -> None:
    ends = []
    for seed in (1, 1, 2):
        task = built(mini, seed)
        task.open_data()
        task.train_until(mark(200))
        ends.append((weights(task), task.evaluate().metrics["top1"]))
        task.close()
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]
    assert not same(ends[0][0], ends[2][0])


def test_micro_batches_change_the_batch_norm_statistics_alone(mini: Config) -> None:
    mini.hyperparameters.gradient_accumulation_steps = 2
    task = built(mini)
    task.open_data()
    assert task.train_until(mark(128)).samples == 128
    assert task._parallel.steps_taken == 2
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
        assert parallel.steps_taken == 0 and task._optimizer.state_dict()["state"] == {}
        generators = (torch.rand(1).item(), np.random.random(), random.random())
        task.open_data()
        task.train_until(mark(128))
        ends.append((weights(task), generators[0]))
        task.close()
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_what_happens_without_trace_is_undone_even_after_an_error() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    parallel = OneRank()
    parallel.wrap(model, optimizer)
    before = [tensor.clone() for tensor in model.state_dict().values()]
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    with pytest.raises(ZeroDivisionError), without_trace(model, optimizer, parallel):
        model.eval(), np.random.random(), random.random(), torch.rand(1)
        model.train()
        model(torch.randn(4, 2)).sum().backward()
        optimizer.param_groups[0]["lr"] = 7.0
        parallel.step()
        model(torch.randn(4, 2)).sum().backward()
        raise ZeroDivisionError
    assert same(before, list(model.state_dict().values()))
    assert all(weight.grad is None for weight in model.parameters())
    assert optimizer.param_groups[0]["lr"] == 0.5 and not optimizer.state and parallel.steps_taken == 0
    assert torch.equal(states[0], torch.get_rng_state()) and states[2] == random.getstate()
    assert (states[1] == np.random.get_state()[1]).all()


def test_an_evaluation_changes_nothing_that_training_sees(mini: Config) -> None:
    ends = []
    for looks in (0, 2):
        task = built(mini)
        task.open_data()
        task.train_until(mark(64))
        for _ in range(looks):
            task.evaluate()
        task.train_until(mark(128))
        ends.append(weights(task))
        task.close()
    assert same(*ends)


def test_a_saved_run_continues_identically(mini: Config, tmp_path: Path) -> None:
    straight = built(mini)
    straight.open_data()
    straight.train_until(mark(500))
    straight.save(tmp_path)
    straight.train_until(mark(1200))
    for opened_first in (True, False):
        resumed = built(mini, seed=99)
        if opened_first:
            resumed.open_data()
        resumed.load(tmp_path)
        if not opened_first:
            resumed.open_data()
        assert resumed.train_until(mark(1200)).samples == 1216
        assert same(weights(straight), weights(resumed))
        assert resumed.evaluate() == straight.evaluate()
        resumed.close()
    straight.close()


def test_ranks_evaluate_disjoint_parts_of_the_evaluation_set(mini: Config) -> None:
    seen = []
    for rank in range(2):
        task = built(mini, parallel=OneRank(rank=rank, size=2))
        task.open_data()
        counts = sum(task._count(batch) for batch in task._eval)
        seen.append(int(counts[1]))
        task.close()
    assert seen == [450, 450]


def test_a_diverged_run_reports_not_a_number(mini: Config) -> None:
    task = built(mini)
    task.open_data()
    assert math.isfinite(task.evaluate().metrics["top1"])
    with torch.no_grad():
        next(task._model.parameters()).fill_(math.nan)
    assert task.evaluate().diverged
    task.close()


def test_a_batch_that_ranks_cannot_share_is_refused(mini: Config) -> None:
    with pytest.raises(RequestError, match="global_batch_size 64 cannot be divided among 3 ranks"):
        built(mini, parallel=OneRank(size=3))


def test_batch_norm_spans_as_many_ranks_as_its_samples_need(mini: Config) -> None:
    asked = []

    class Listening(OneRank):
        def batch_norm(self, model, *, ranks):
            asked.append(ranks)
            return model

    for span in (None, 8, 16, 32, 640):
        mini.hyperparameters.model_bn_span = span
        built(mini, parallel=Listening(size=4))
    assert asked == [1, 1, 1, 2, 4]


@pytest.mark.parametrize(("span", "ranks", "told"), [(None, 1, 64), (None, 2, 32), (32, 4, 32), (8, 4, 16)])
def test_the_plan_is_told_the_batch_norm_span_that_will_hold(
    mini: Config, span: int | None, ranks: int, told: int
) -> None:
    mini.hyperparameters.model_bn_span = span
    assert mini.for_ranks(ranks).hyperparameters.model_bn_span == told
    assert mini.hyperparameters.model_bn_span == span


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
    task._forward.train()
    task._train_step(iter([data.synthetic(config, 2)]))
    assert math.isfinite(float(task._last_loss))
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(task))
    assert not same(before, weights(task))
    assert len(task.initialized_tensors()) == 161


def test_a_compiled_task_keeps_its_tensor_names(mini: Config) -> None:
    mini.compile = True
    with torch.compiler.set_stance("force_eager"):
        task = built(mini)
    assert next(iter(task._model.state_dict())) == "conv0.weight"


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = built(mini, parallel=parallel)
    task.open_data()
    task.train_until(mark(897))
    assert math.isfinite(task.evaluate().metrics["top1"])
    task.close()
