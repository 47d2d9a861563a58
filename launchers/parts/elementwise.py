"""Elementwise optimizers: those that can update parts of tensors."""

from __future__ import annotations

from train_bench.task import BenchmarkConfig

ELEMENTWISE = ("sgd", "sgd_with_momentum", "adam", "adamw", "adagrad")
"""Optimizers, as `opt_name` spells them, whose update of a weight depends on that weight's gradient and state
alone. A rank that holds a part of a tensor computes anything that looks at the whole of it (the trust ratios of LARS
and LAMB) of the wrong numbers."""


def refuse_whole_tensors(benchmark: BenchmarkConfig, *, option: str, instead: str) -> str | None:
    """Reason that `option`, which shards tensors among ranks, does not fit the optimizer of `benchmark`; None if it
    does."""
    optimizer = getattr(benchmark.hyperparameters, "opt_name", None)
    if optimizer in ELEMENTWISE:
        return None
    return (
        f"{option} shards tensors and supports only elementwise optimizers ({', '.join(ELEMENTWISE)}); "
        f"this benchmark uses {optimizer or 'none of them'}. Use {instead}."
    )
