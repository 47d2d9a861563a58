"""Assignment of a serving process: the scenario, the weights in turn, the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train_bench.serving.batching import Batching

WORK = "serve"
"""`Job.work` of serving processes, and the verb."""

SERVED = "served.json"
"""Report of a serving process on its tests."""

FAILING_RUN = "Server_above"
"""Folder of the run that fails 5 % above the rate of the Server scenario."""

ACCURACY, PERFORMANCE_RUN = "accuracy", "performance/run_1"
"""Folders of the tests of a scenario, beside those of its compliance tests."""

SCENARIOS = {
    "offline": "Offline",
    "server": "Server",
    "single_stream": "SingleStream",
    "multi_stream": "MultiStream",
}
"""Scenarios as they are typed, and as LoadGen names them."""


QUANTISATIONS = ("none", "bf16", "int8_dynamic")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWeights:
    """Weights of a run, its seed, its logged `quality`, and the digest of the evaluation set that its log names."""

    index: int
    seed: int
    files: tuple[str, ...]
    quality: Mapping[str, float]
    evaluation_digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Assignment of one process; `folder` is that of the whole result."""

    scenario: str
    rules: str
    weights: tuple[ServedWeights, ...]
    batching: Batching
    quantisation: str
    folder: Path


def power_log_of(test: str) -> Path:
    """Power log of a performance test, beside its folder."""
    return Path(test).with_name("power") / "node_0.txt"


def as_options(assignment: Assignment) -> dict[str, Any]:
    """Assignment as plain data, which a job carries."""
    return asdict(assignment) | {"folder": str(assignment.folder)}


def folder_of(scenario: str, index: int) -> Path:
    """Folder of the tests of a scenario with the weights of run `index`, within the result."""
    return Path(f"run_{index}", scenario)
