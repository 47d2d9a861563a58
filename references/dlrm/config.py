"""Configuration of the recommendation benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from train_bench import task
from train_bench.references.parts.recommendation import config as recommendation
from train_bench.references.parts.recommendation.config import Model


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "recommendation"). Rates are per step of the global
    batch; steps are optimizer steps.

    sgd_opt_base_learning_rate   the rate where the decay starts, which is `opt_base_learning_rate`
    """

    opt_base_learning_rate: float
    opt_learning_rate_warmup_steps: int
    lr_decay_start_steps: int
    sgd_opt_base_learning_rate: float
    sgd_opt_learning_rate_decay_poly_power: int = 2
    sgd_opt_learning_rate_decay_steps: int


@dataclass(slots=True, kw_only=True)
class Data(recommendation.Data):
    """max_index   categorical values of Criteo are taken modulo this before they are numbered"""

    max_index: int = 40_000_000


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """The recommendation benchmark at any scale. `warm_up_steps` are taken on synthetic batches before the
    clock and then undone.

    hold_warmup_rate   the last rate of the warm-up is held until the decay, as by the reference; false: the base rate
                       follows the warm-up
    """

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    hold_warmup_rate: bool = False
    warm_up_steps: int = 2

    GENERATES: ClassVar[tuple[str, ...]] = ("clicks",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *recommendation.TUNABLE,
    )

    SHARDED: ClassVar[bool] = True

    def parameter_count(self, ranks: int) -> task.ParameterCount:
        """The tables of the fullest rank; the dense part is small beside them."""
        return task.ParameterCount(trained=0, local=self.model.fullest(ranks))

    def refuse(self) -> str | None:
        """The schedule has an order (reference: the warm-up ends before the decay starts), a table has rows."""
        hyperparameters = self.hyperparameters
        warmup, start = hyperparameters.opt_learning_rate_warmup_steps, hyperparameters.lr_decay_start_steps
        if warmup > start:
            return (
                f"opt_learning_rate_warmup_steps is {warmup} and lr_decay_start_steps {start}; the warm-up has "
                f"to end before the decay starts."
            )
        if hyperparameters.sgd_opt_base_learning_rate != hyperparameters.opt_base_learning_rate:
            return (
                f"sgd_opt_base_learning_rate is {hyperparameters.sgd_opt_base_learning_rate:g}; the decay starts at "
                f"opt_base_learning_rate, {hyperparameters.opt_base_learning_rate:g}."
            )
        return self.model.refuse()
