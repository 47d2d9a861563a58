"""train_bench: how long a machine and its software take to train a model to a given quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train_bench.own_trainer.benchmark import Benchmark

__version__ = "0.2.0"
__all__ = ["Benchmark", "__version__"]


def __getattr__(name: str) -> type[Benchmark]:
    if name != "Benchmark":
        raise AttributeError(f"module 'train_bench' has no attribute {name!r}")
    from train_bench.own_trainer.benchmark import Benchmark

    return Benchmark
