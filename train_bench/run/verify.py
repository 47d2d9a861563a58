"""Ranks of `train-bench verify`: evaluate kept weights. `python -m ... PLAN.json INDEX`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from train_bench.core import files
from train_bench.core.job import EVALUATED, Job
from train_bench.parallel import Parallel
from train_bench.run import rank, weights
from train_bench.task import DataFacts, Task


class OfEvaluation:
    """A `Parallel` whose batch norm takes no statistics over ranks: an evaluation takes none, and the group size of
    training need not be possible here."""

    def __init__(self, parallel: Parallel) -> None:
        self._parallel = parallel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parallel, name)

    def batch_norm(self, model: torch.nn.Module, *, ranks: int) -> torch.nn.Module:
        """Unchanged."""
        return model


def restore(job: Job, task: Task, parallel: Parallel, kept: Sequence[str]) -> DataFacts:
    """Build the task of `job` with the weights of these files, and open its data."""
    exporting = weights.require_export(task, job)
    task.build(job.seed, OfEvaluation(parallel))
    facts = task.open_data()
    parallel.sync_buffers()  # weights are whole from here on, also with sharding launchers
    weights.put_back(exporting, [Path(path) for path in kept])
    return facts


def evaluate_again(job: Job, task: Task, parallel: Parallel) -> None:
    """Evaluate the `files` of the options; rank 0 writes the metrics, None for NaN or infinity."""
    restore(job, task, parallel, job.work_options["files"])
    quality = task.evaluate()
    if parallel.rank == 0:
        metrics = {name: value if math.isfinite(value) else None for name, value in quality.metrics.items()}
        files.write_json(job.folder / EVALUATED, metrics)


if __name__ == "__main__":
    rank.main(evaluate_again)
