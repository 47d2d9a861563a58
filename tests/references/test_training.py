"""A benchmark that says no more than it has to: a line through points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.references.one_rank import OneRank
from tests.references.tasks import mark, same, weights
from tests.references.test_prefetch import FakeSide
from train_bench.errors import RequestError
from train_bench.quality import Quality
from train_bench.references.parts import checkpoint, loading, stream, training
from train_bench.references.parts.training import TrainingTask
from train_bench.task import DataFacts, Hyperparameters, LearningRates

Batch = tuple[Tensor, Tensor]


@dataclass(kw_only=True)
class Config:
    """What training asks of a configuration, and how points are loaded."""

    hyperparameters: Hyperparameters = field(default_factory=lambda: Hyperparameters(global_batch_size=4))
    compile_mode: str | None = None
    warm_up_steps: int = 2
    workers: int | None = 0
    prefetch: int = 2


class Points:
    """Points on a line, which are their own stored set."""

    def __init__(self, first: float, count: int) -> None:
        self.places = torch.linspace(first, first + 1, count).view(-1, 1)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, item: int | tuple[int, int]) -> Batch:
        place = self.places[item if isinstance(item, int) else item[0]]
        return place, 2 * place + 1

    @property
    def stored(self) -> Points:
        return self

    def files(self) -> list[Path]:
        return []

    def content(self, index: int) -> np.ndarray:
        return self.places[index].numpy().view(np.uint8)


class Task(TrainingTask[Config, Batch]):
    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Linear(1, 1)
        return model, torch.optim.SGD(model.parameters(), lr=0.0)

    def warm_up(self) -> None:
        points = torch.zeros(self.local_batch_size, 1)
        self.run_warmup((points, points))
        self._error((points, points))

    def open_data(self) -> DataFacts:
        train, val, device = Points(0.0, 10), Points(0.05, 6), self.parallel.device
        order = stream.Shuffled(samples=len(train), seed=self.seed)
        mine = stream.evaluation_order(len(val), 2, self.parallel.rank, self.parallel.size, padded=False)
        fingerprint = self.use_loaders(
            loading.loader(train, self.config, device, self.sampler(order)),
            loading.loader(val, self.config, device, mine),
        )
        return DataFacts(train_samples=len(train), eval_samples=len(val), fingerprint=fingerprint)

    def train_step(self, batches: Iterator[Batch]) -> None:
        for places, values in self.micro_batches(batches):
            self.backward(nn.functional.mse_loss(self.forward(places), values))
        self.step(0.4 if self.optimizer_steps < 100 else 0.1)

    def evaluate(self) -> Quality:
        error = float(self.reduce_over_eval(self._error, 0 * self.last_loss))
        return Quality(metrics={"error": error if math.isfinite(error) else math.nan})

    def _error(self, batch: Batch) -> Tensor:
        return (self.infer(batch[0]) - batch[1]).square().sum()


def built(*, steps: int = 1, batch: int = 4, parallel: OneRank | None = None) -> Task:
    hyperparameters = Hyperparameters(global_batch_size=batch, gradient_accumulation_steps=steps)
    task = Task(Config(hyperparameters=hyperparameters))
    task.build(1, parallel or OneRank())
    task.open_data()
    return task


def test_it_learns_counts_and_names_its_parameters() -> None:
    task = built()
    before = task.evaluate().metrics["error"]
    assert task.train_until(mark(401)).samples == 404
    assert task.evaluate().metrics["error"] < 1e-3 * before
    assert task.initialized_tensors() == ["weight", "bias"]
    assert task.samples_taken().trained == 404 and task.samples_taken().evaluated == [6, 6]
    task.close()


def test_the_seed_of_a_run_decides_its_initial_weights() -> None:
    def drawn(seed: int) -> Tensor:
        task = Task(Config())
        torch.manual_seed(3)
        task.build(seed, OneRank())
        return torch.cat([weight.flatten() for weight in weights(task)])

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_micro_batches_add_up_to_the_global_batch() -> None:
    ends = []
    for steps in (1, 2, 4):
        task = built(steps=steps)
        task.train_until(mark(40))
        assert (task.iterations, task.optimizer_steps) == (10, 10)
        ends.append(torch.cat([weight.flatten() for weight in weights(task)]))
    assert all(torch.allclose(end, ends[0], atol=1e-6) for end in ends)


def test_each_micro_batch_is_computed_and_its_gradient_added_within_the_numerics_of_the_job() -> None:
    class Watched(OneRank):
        def __init__(self) -> None:
            super().__init__()
            self.said: list[str] = []

        def forward(self, *, last_microbatch: bool = True):  # type: ignore[no-untyped-def]
            said, inner = self.said, super().forward()

            class Context:
                def __enter__(self) -> None:
                    said.append("last" if last_microbatch else "first")
                    inner.__enter__()

                def __exit__(self, *error: object) -> None:
                    said.append("left")

            return Context()

        def backward(self, loss: Tensor) -> None:
            self.said.append("backward")
            super().backward(loss)

        def step(self, *, clip_norm: float | None = None) -> bool:
            self.said.append("step")
            return super().step(clip_norm=clip_norm)

    parallel = Watched()
    task = built(steps=2, parallel=parallel)
    parallel.said.clear()
    task.train_until(mark(4))
    assert parallel.said == ["first", "backward", "left", "last", "backward", "left", "step"]


def test_without_a_rate_the_groups_keep_theirs() -> None:
    task = built()
    task.train_until(mark(4))
    (group,) = task.optimizer.param_groups
    group["lr"] = 0.0
    before = weights(task)
    for places, values in task.micro_batches(iter([(torch.ones(4, 1), torch.ones(4, 1))])):
        task.backward(nn.functional.mse_loss(task.forward(places), values))
    assert task.step() and same(before, weights(task))


def test_it_tells_the_first_and_the_highest_rate_of_the_run(tmp_path: Path) -> None:
    """Not those of the warm-up, whose step 0 comes before the run's."""

    class Rising(Task):
        def step(self, rate: float | None = None, *, clip_norm: float | None = None) -> bool:
            rate = (0.1, 0.3, 0.2)[min(self.optimizer_steps, 2)]
            return super().step(rate, clip_norm=clip_norm)

    task = Rising(Config())
    task.build(1, OneRank())
    assert task.learning_rates() is None
    task.open_data()
    task.train_until(mark(4))
    assert task.learning_rates() == LearningRates(first=0.1, highest=0.1)
    task.train_until(mark(20))
    assert task.learning_rates() == LearningRates(first=0.1, highest=0.3)


def test_a_step_that_was_skipped_has_no_rate() -> None:
    class Overflowing(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            return False

    task = built(parallel=Overflowing())
    task.train_until(mark(8))
    assert task.learning_rates() is None


def test_whether_a_step_was_skipped_is_asked_once_the_next_gradients_are_under_way() -> None:
    diary: list[str] = []

    class Late(OneRank):
        def backward(self, loss: torch.Tensor) -> None:
            diary.append("backward")
            super().backward(loss)

        def step(self, *, clip_norm: float | None = None) -> Any:
            diary.append("step")
            super().step(clip_norm=clip_norm)
            return Result(self.steps_taken != 2)

    class Result:
        def __init__(self, stepped: bool) -> None:
            self.stepped = stepped

        def __bool__(self) -> bool:
            diary.append("asked")
            return self.stepped

    task = built(parallel=Late())
    diary.clear()
    task.train_until(mark(12))
    assert diary == ["backward", "step", *2 * ["backward", "asked", "step"]]
    counted, rates = task.optimizer_steps, task.learning_rates()
    assert diary[-1] == "asked" and (task.iterations, counted) == (3, 2)
    assert rates == LearningRates(first=0.4, highest=0.4) and diary.count("asked") == 3


def test_of_groups_with_rates_of_their_own_the_lowest_is_told() -> None:
    task = built()
    task.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.0})
    task.optimizer.param_groups[0]["lr"] = 0.5
    task.step()
    assert task.learning_rates() == LearningRates(first=0.0, highest=0.0)


def test_rates_that_are_tensors_are_not_told() -> None:
    task = built()
    task.optimizer.param_groups[0]["lr"] = torch.tensor(0.5)
    task.step()
    assert task.learning_rates() is None


def test_a_continued_run_tells_the_rates_of_the_whole_run(tmp_path: Path) -> None:
    saved, resumed = built(), built()
    saved.train_until(mark(400))
    saved.save(tmp_path)
    resumed.load(tmp_path)
    resumed.train_until(mark(404))
    assert resumed.optimizer.param_groups[0]["lr"] == 0.1
    assert resumed.learning_rates() == LearningRates(first=0.4, highest=0.4)


def test_a_checkpoint_without_rates_leaves_the_first_one_unknown(tmp_path: Path) -> None:
    """As they were written before."""
    saved, resumed = built(), built()
    saved.train_until(mark(400))
    without = {name: value for name, value in saved._counters().items() if not name.endswith("_rate")}
    checkpoint.save(tmp_path, saved.parallel, saved.model, saved.optimizer, without)
    resumed.load(tmp_path)
    resumed.train_until(mark(404))
    assert resumed.learning_rates() == LearningRates(first=None, highest=0.1)


def test_what_is_continued_is_what_would_have_been(tmp_path: Path) -> None:
    straight, resumed = built(), built()
    straight.train_until(mark(20))
    straight.save(tmp_path)
    straight.train_until(mark(40))
    resumed.load(tmp_path)
    assert resumed.train_until(mark(40)).samples == 40 and same(weights(straight), weights(resumed))


def test_a_checkpoint_is_mapped_and_copied_to_where_the_weights_are(tmp_path: Path) -> None:
    """Not loaded as a whole onto the device of the rank, and not asked for again once it has been read."""
    saved, loaded = built(), built()
    saved.optimizer.param_groups[0]["momentum"] = 0.9
    saved.train_until(mark(20))
    saved.save(tmp_path)
    loaded.parallel.device = torch.device("meta")
    loaded.load(tmp_path)
    file = tmp_path / checkpoint.FILE
    with file.open("r+b") as opened:
        opened.write(bytes(file.stat().st_size))
    before, after = (task.optimizer.state_dict()["state"].values() for task in (saved, loaded))
    assert same(weights(saved), weights(loaded))
    assert same(*([of["momentum_buffer"] for of in state] for state in (before, after)))


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(RequestError, match="global_batch_size 4 cannot be divided among 1 ranks with 3"):
        built(steps=3)


def test_a_run_has_diverged_once_its_loss_or_an_output_is_not_finite() -> None:
    task, finite = built(), torch.zeros(3)
    assert not task.has_diverged() and not task.has_diverged(finite, finite.long())
    assert task.has_diverged(finite, torch.tensor([0.0, math.inf]))
    task.last_loss = torch.tensor(math.nan)
    assert task.has_diverged() and task.has_diverged(finite)


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_divide_every_batch_among_them_in_the_order_of_the_seed(ranks: int) -> None:
    """Together they take what one rank would."""
    order = stream.Shuffled(samples=10, seed=1)
    of_ranks = []
    for rank in range(ranks):
        task = built(steps=1, batch=4, parallel=OneRank(rank=rank, size=ranks))
        batches = iter(task.sampler(order))
        of_ranks.append([next(batches) for _ in range(5)])
    together = [item for step in zip(*of_ranks, strict=True) for batch in step for item in batch]
    (whole,) = order.items([range(20)])
    assert together == whole


def test_the_warm_up_leaves_weights_generator_and_counters_as_they_were() -> None:
    tasks = [Task(Config(warm_up_steps=steps)) for steps in (0, 2)]
    drawn = []
    for task in tasks:
        task.build(1, OneRank())
        drawn.append(torch.rand(1))
    assert same(*map(weights, tasks)) and same(drawn[:1], drawn[1:])
    assert [(task.iterations, task.optimizer_steps, float(task.last_loss)) for task in tasks] == [
        (0, 0, 0.0)
    ] * 2


@pytest.mark.parametrize("copies", [True, False])
def test_evaluation_batches_are_copied_beside_the_steps_where_a_task_uses_them_on_the_device(
    monkeypatch: pytest.MonkeyPatch, copies: bool
) -> None:
    side = FakeSide()
    monkeypatch.setattr(training, "side_of", lambda device: side)
    monkeypatch.setattr(Task, "EVALUATES_COPIES", copies)
    task = built()
    assert side.diary == []
    batches = len(list(task.evaluation_batches()))
    assert batches > 1 and side.diary.count("copy") == copies * batches


def test_an_evaluation_averages_buffers_first_and_leaves_the_model_in_training_mode() -> None:
    trace: list[str] = []

    class Synced(OneRank):
        def sync_buffers(self) -> None:
            trace.append("sync")

    task = built(parallel=Synced())
    task.forward.train()
    for _ in task.evaluation_batches():
        trace.append("train" if task.forward.training else "eval")
    assert trace == ["sync", "eval", "eval", "eval"]
    assert task.forward.training
