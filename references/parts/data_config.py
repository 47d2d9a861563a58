"""Configuration of a data set of arrays (`arrays.py`). No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from train_bench import task


@dataclass(slots=True, kw_only=True)
class ArrayData:
    """Checking and reading of the arrays; a benchmark adds their source.

    sha256           digest that they must have together; null: not checked
    eval_batch_size  samples per forward pass of an evaluation
    workers          loader processes per rank; 0 loads in the training process, null suits the machine
    prefetch         batches that each worker holds ready
    permute_labels   every training sample gets the label of another one: nothing can be learnt
    """

    sha256: str | None = None
    eval_batch_size: int = 1024
    workers: int | None = 0
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class ArrayConfig(task.BenchmarkConfig):
    """A benchmark on such a data set; it adds `hyperparameters`, with its own type, and its model.

    warm_up_steps  iterations on synthetic batches before the clock, which are undone
    """

    data: ArrayData
    warm_up_steps: int = 2

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("data.eval_batch_size", "data.workers", "data.prefetch", "warm_up_steps"),
    )
