"""Two ranks of every reference hold the same model, statistics and optimizer state after training, bit by bit, and
without averaged gradients they do not."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tests.launchers.faults import no_average
from tests.references import configs
from tests.references.several_ranks import FromFile, start
from tests.references.test_task_contract import CASES
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.run import replicas

OVERRIDES = {name: case.overrides for name, case in CASES.items()} | {"minigo": ()}


def _rank(number: int, folder: Path) -> None:
    proper = TorchParallel.forward
    parallel = FromFile(folder, rank=number, size=2)
    found = {}
    for name, overrides in OVERRIDES.items():
        config = getattr(configs, name)(f"{name}_mini", "warm_up_steps=0", *overrides)
        asked = config.hyperparameters
        micro = asked.global_batch_size // (2 * asked.gradient_accumulation_steps)
        synthetic = importlib.import_module(f"train_bench.references.{name}.data").synthetic
        task = importlib.import_module(f"train_bench.references.{name}.task").Task(config)
        task.build(1, parallel)
        for fault in (False, True):
            TorchParallel.forward = proper  # type: ignore[method-assign]
            if fault:
                no_average("torchrun")
            for step in range(2):
                batch = synthetic(config, micro, seed=2 * step + number)
                task._train_step(iter([batch] * asked.gradient_accumulation_steps))
            parallel.sync_buffers()
            found[f"{name} {'alone' if fault else 'together'}"] = replicas.compare(parallel)
    if number == 0:
        (folder / "found.json").write_text(json.dumps(found))
    parallel.leave()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What was found of every reference, in two processes that take one after the other."""
    folder = tmp_path_factory.mktemp("replicas")
    start(_rank, folder, ranks=2)
    told: dict[str, dict[str, object]] = json.loads((folder / "found.json").read_text())
    return told


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_ranks_that_average_hold_the_same(found: dict[str, dict[str, object]], name: str) -> None:
    assert found[f"{name} together"]["equal"], found[f"{name} together"]


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_ranks_that_do_not_average_are_found(found: dict[str, dict[str, object]], name: str) -> None:
    assert not found[f"{name} alone"]["equal"]
