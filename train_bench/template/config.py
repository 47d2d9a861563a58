"""What can be asked of this benchmark. Imports nothing heavy, so that listing and planning need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from train_bench import task
from train_bench.references.parts.data_config import ArrayData


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the log has them; `rules.yaml` says what is allowed."""

    opt_base_learning_rate: float


@dataclass(slots=True, kw_only=True)
class Model:
    """channels  of both convolutions"""

    channels: int


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """The benchmark; `warm_up_steps` are taken on synthetic batches before the clock and then undone."""

    hyperparameters: Hyperparameters
    model: Model
    data: ArrayData
    warm_up_steps: int = 2

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("data.eval_batch_size", "data.workers", "data.prefetch", "warm_up_steps"),
    )
