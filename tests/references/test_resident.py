"""Small sets on a device: their batches are those of loader processes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.references import configs
from tests.references.one_rank import OneRank
from train_bench.references.parts import loading, resident


def opened(name: str, folder: Path, *overrides: str) -> Any:
    config = getattr(configs, name)(f"{name}_mini", f"data_dir={folder}", "warm_up_steps=0", *overrides)
    task = importlib.import_module(f"train_bench.references.{name}.task").Task(config)
    task.build(1, OneRank())
    task.open_data()
    return task


def tensors(batch: Any) -> list[torch.Tensor]:
    parts = batch if isinstance(batch, tuple) else (batch,)
    return [part for part in parts if part is not None]


@pytest.mark.parametrize("name", ["llama2_70b_lora", "llama31_8b", "bert", "dlrm"])
def test_batches_of_a_set_on_a_device_are_those_of_the_loader(
    prepared: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(resident, "holds_sets", lambda device: True)
    short = "data.eval_batch_size=7"  # the last batch is not full
    tasks = [opened(name, prepared(name), short, f"data.workers={workers}") for workers in ("null", "0")]
    kinds = [isinstance(task._train.loading, resident.Resident) for task in tasks]
    assert kinds == [True, False], "a number of processes is honoured"
    held = [
        one for one in (tasks[0]._train.loading, tasks[0]._eval.loading) if isinstance(one, resident.Resident)
    ]
    planned = [task.device_sets() for task in tasks]
    assert planned == [sum(part.nbytes for one in held for part in tensors(one._whole)), 0]
    steps = 2 + tasks[0].config.train_samples // tasks[0].config.hyperparameters.global_batch_size
    passes = [[*islice(task._batches, steps), *task._eval, *task._eval] for task in tasks]
    for one, other in zip(*passes, strict=True):
        assert all(map(torch.equal, tensors(one), tensors(other)))
    counted = [task.samples_taken() for task in tasks]
    assert [each.trained for each in counted] == [each.trained for each in counted[::-1]]
    assert counted[0].evaluated == counted[1].evaluated
    for task in tasks:
        task.close()


class Squares:
    """Eight bytes a sample."""

    stored: Any = None

    def __getitem__(self, items: list[int]) -> torch.Tensor:
        return torch.tensor(items) ** 2


@pytest.mark.parametrize(
    ("holds", "rows", "largest", "found"),
    [(True, 4, 32, True), (True, 4, 31, False), (True, 0, 32, False), (False, 4, 32, False)],
)
def test_a_set_is_held_by_a_device_with_memory_of_its_own_if_it_is_small(
    monkeypatch: pytest.MonkeyPatch, holds: bool, rows: int, largest: int, found: bool
) -> None:
    monkeypatch.setattr(resident, "holds_sets", lambda device: holds)
    monkeypatch.setattr(resident, "LARGEST", largest)
    config = SimpleNamespace(workers=None, prefetch=2)
    order = [[2, 0], [1, 3], [9, 3]]  # 9 is padding, as 3 is
    made = loading.loader(
        Squares(), config, torch.device("cpu"), order, collate=None, rows=rows, padding_from=3
    )
    assert isinstance(made.loading, resident.Resident) is found
    if found:
        assert [batch.tolist() for batch in made] == [[4, 0], [1, 9], [9, 9]]
        assert made.record.counts == [3]
