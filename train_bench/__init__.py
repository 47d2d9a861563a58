"""train_bench: how long a machine and its software take to train a model to a given quality.

    campaign = train_bench.run(benchmark="resnet_mini", output="demo")
    judged = train_bench.judge("training_results_v1.1")
    compared = train_bench.compare("before", "after")

`Benchmark` is the clock for a trainer of your own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from train_bench.api import compare, judge, run
    from train_bench.own_trainer.benchmark import Benchmark

__version__ = "0.3.0"
__all__ = ["Benchmark", "__version__", "compare", "judge", "run"]


def __getattr__(name: str) -> Any:
    if name == "Benchmark":
        return importlib.import_module("train_bench.own_trainer.benchmark").Benchmark
    if name in __all__:
        return importlib.import_module(f"train_bench.{name}")
    raise AttributeError(f"module 'train_bench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
