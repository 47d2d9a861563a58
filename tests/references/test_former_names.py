"""Benchmarks that are written in the former names of `TrainingTask`, with their hooks and helpers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import train_bench.references
from tests.references.one_rank import OneRank
from tests.references.tasks import mark, same
from tests.references.test_training import Batch, Config, Points, Task
from train_bench.cli.program import command
from train_bench.core import plugins
from train_bench.references.parts import loading, stream
from train_bench.references.parts.former_names import ATTRIBUTES, METHODS
from train_bench.references.parts.training import TrainingTask
from train_bench.task import DataFacts

EXAMPLES = Path(__file__).parents[2] / "examples"


class Line(TrainingTask[Config, Batch]):
    """The line of `test_training`, as it would have been written before."""

    _tensor_names = ("slope", "intercept")

    def _build_model(self):
        model = nn.Linear(1, 1)
        return model, torch.optim.SGD(model.parameters(), lr=0.0)

    def _warm_up(self):
        points = torch.zeros(self._local_batch_size, 1)
        self._run_warmup((points, points))

    def open_data(self):
        train, val, device = Points(0.0, 10), Points(0.05, 6), self._parallel.device
        order = stream.Shuffled(samples=len(train), seed=self._seed)
        mine = stream.evaluation_order(len(val), 2, self._parallel.rank, self._parallel.size, padded=False)
        fingerprint = self._use_loaders(
            loading.loader(train, self.config, device, self._sampler(order)),
            loading.loader(val, self.config, device, mine),
        )
        return DataFacts(train_samples=len(train), eval_samples=len(val), fingerprint=fingerprint)

    def _train_step(self, batches):
        for places, values in self._micro_batches(batches):
            self._backward(nn.functional.mse_loss(self._forward(places), values))
        self._optimizer_step(0.4 if self._optimizer_steps < 100 else 0.1)

    def _optimizer_step(self, rate=None, *, clip_norm=None):
        self.rates_used = [*getattr(self, "rates_used", []), rate]
        return super()._optimizer_step(rate, clip_norm=clip_norm)

    def evaluate(self):
        errors = [(self._infer(places) - values).square().sum() for places, values in self._evaluation()]
        return float(sum(errors)), self._has_diverged()


class OlderLine(Line):
    """The line with names from before those."""

    def _warm_up(self):
        points = torch.zeros(self._local_batch_size, 1)
        self._rehearse((points, points))

    def evaluate(self):
        def measure(batch):
            return (self._infer(batch[0]) - batch[1]).square().sum().view(1)

        return float(self._summed(measure, torch.zeros(1))), self._has_diverged()


def trained(kind: type) -> TrainingTask:
    task: TrainingTask = kind(Config())
    task.build(1, OneRank())
    task.open_data()
    task.train_until(mark(40))
    return task


@pytest.mark.parametrize("kind", [Line, OlderLine])
def test_a_task_in_former_names_trains_as_one_in_the_names_of_today(kind) -> None:
    former, today = trained(kind), trained(Task)
    assert same([*former.model.parameters()], [*today.model.parameters()])
    assert former.evaluate() == (pytest.approx(today.evaluate().metrics["error"]), False)
    assert former.rates_used == [0.4] * 12  # 2 of the warm-up


@pytest.mark.parametrize(("former", "name"), ATTRIBUTES.items())
def test_an_attribute_has_both_names(former: str, name: str) -> None:
    task = trained(Line)
    assert getattr(task, former) is getattr(task, name)
    setattr(task, former, "another")
    assert getattr(task, name) == "another" and former not in vars(task)


def test_names_of_the_log_may_belong_to_the_class() -> None:
    assert trained(Line).initialized_tensors() == ("slope", "intercept")


def test_a_method_of_today_may_be_called_and_changed_under_its_former_name() -> None:
    class Doubled(Task):
        def _backward(self, loss: Tensor) -> None:
            super()._backward(2 * loss)

    class Twice(Task):
        def backward(self, loss: Tensor) -> None:
            super().backward(2 * loss)

    one, other = trained(Doubled), trained(Twice)
    assert same([*one.model.parameters()], [*other.model.parameters()])
    assert Twice._backward is Twice.backward


@pytest.mark.parametrize("name", ["_train_step", "train_step"])
def test_a_hook_may_come_from_a_class_that_is_no_task(name: str) -> None:
    class Idle(TrainingTask[Config, Batch]):
        build_model, warm_up = Task.build_model, Task.warm_up
        open_data, evaluate = Task.open_data, Task.evaluate

    def count(self: TrainingTask, batches: Iterator[Batch]) -> None:
        self.step(0.1)

    stepping = type("Stepping", (), {name: count})
    kind = type("Both", (stepping, Idle), {"_error": Task._error})
    assert trained(kind).iterations == 10


def test_of_several_classes_the_first_that_has_a_method_gives_it() -> None:
    class Plain(Task):
        pass

    class Twice(Task):
        def backward(self, loss: Tensor) -> None:
            super().backward(2 * loss)

    both = type("Both", (Plain, Twice), {})
    assert both.backward is Twice.backward and both._backward is Twice.backward


def test_names_that_only_other_parts_have_are_the_benchmarks_own() -> None:
    class Own(Task):
        def total(self) -> int:
            return 1

        def rate(self) -> float:
            return 0.5

    class Other(Own):
        def _total(self) -> int:
            return 2

    assert Other.total is Own.total and not hasattr(Own, "_rate")


def in_former_names(text: str) -> str:
    """The source of a task with the names that it would have had before."""
    for former, name in {**ATTRIBUTES, **METHODS}.items():
        text = re.sub(rf"\bself\.{name}\b", f"self.{former}", text)
    for former, name in METHODS.items():
        text = re.sub(rf"\bdef {name}\(", f"def {former}(", text)
    return text


@pytest.fixture
def former_ncf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a benchmark outside, a copy of an example in former names."""
    name, folder = "former_ncf", tmp_path / "plugins" / "former_ncf"
    shutil.copytree(EXAMPLES / "ncf", folder)
    for path in folder.rglob("*.yaml"):
        path.write_text(path.read_text().replace("ncf", name))
        path.rename(path.with_name(path.name.replace("ncf", name)))
    task = folder / "task.py"
    task.write_text(in_former_names(task.read_text()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(plugins.VARIABLE, str(folder.parent))
    packages = [*train_bench.references.__path__, str(folder.parent)]
    monkeypatch.setattr(train_bench.references, "__path__", packages)
    return name


@pytest.mark.slow
def test_an_example_in_former_names_keeps_the_contract(
    former_ncf: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("check")([f"benchmark={former_ncf}"]) == 0, capsys.readouterr().out
