"""Two ranks of every reference hold the same model, statistics and optimizer state after training, bit by bit, and
without averaged gradients they do not."""

from __future__ import annotations

import importlib
import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.launchers.faults import no_average
from tests.references import configs
from tests.references.several_ranks import FromFile, start
from tests.references.tasks import synthetic
from tests.references.test_task_contract import SPECIAL, Case
from train_bench.plan import discover
from train_bench.run import replicas

pytestmark = pytest.mark.full

OVERRIDES = {name: SPECIAL.get(name, Case()).overrides for name in discover.references()}


def _rank(number: int, folder: Path) -> None:
    parallel = FromFile(folder, rank=number, size=2)
    compared = {}
    for name, overrides in OVERRIDES.items():
        config = getattr(configs, name)(f"{name}_mini", "warm_up_steps=0", *overrides)
        hyperparameters = config.hyperparameters
        micro = hyperparameters.global_batch_size // (2 * hyperparameters.gradient_accumulation_steps)
        look_alikes = synthetic(name)
        task = importlib.import_module(f"train_bench.references.{name}.task").Task(config)
        task.build(1, parallel)
        for fault in (False, True):
            with no_average("torchrun") if fault else nullcontext():
                for step in range(2):
                    batch = look_alikes(config, micro, seed=2 * step + number)
                    task.train_step(iter([batch] * hyperparameters.gradient_accumulation_steps))
            parallel.sync_buffers()
            compared[f"{name} {'alone' if fault else 'together'}"] = replicas.compare(parallel)
    if number == 0:
        (folder / "found.json").write_text(json.dumps(compared))
    parallel.leave()


@pytest.fixture(scope="module")
def compared_by_fault(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What was found of every reference, in two processes that take one after the other."""
    folder = tmp_path_factory.mktemp("replicas")
    start(_rank, folder, ranks=2)
    compared: dict[str, dict[str, object]] = json.loads((folder / "found.json").read_text())
    return compared


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_ranks_that_average_hold_the_same(compared_by_fault: dict[str, dict[str, object]], name: str) -> None:
    assert compared_by_fault[f"{name} together"]["equal"], compared_by_fault[f"{name} together"]


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_ranks_that_do_not_average_are_found(
    compared_by_fault: dict[str, dict[str, object]], name: str
) -> None:
    assert not compared_by_fault[f"{name} alone"]["equal"]
