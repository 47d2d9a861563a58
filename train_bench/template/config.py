"""Configuration of this benchmark. Imports nothing heavy, so that listing and planning need no torch."""

from __future__ import annotations

from dataclasses import dataclass

from train_bench import task
from train_bench.references.parts.data_config import ArrayConfig


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the log has them; `rules.yaml` says what is allowed."""

    opt_base_learning_rate: float


@dataclass(slots=True, kw_only=True)
class Model:
    """channels  of both convolutions"""

    channels: int


@dataclass(slots=True, kw_only=True)
class Config(ArrayConfig):
    """The benchmark."""

    hyperparameters: Hyperparameters
    model: Model
