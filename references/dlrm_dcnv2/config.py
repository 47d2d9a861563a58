"""Configuration of recommendation with a cross network. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from train_bench import task
from train_bench.references.parts.recommendation import config as recommendation
from train_bench.references.parts.recommendation.config import Data


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "dlrm_dcnv2"). The rate is constant."""

    opt_name: str = "adagrad"
    opt_base_learning_rate: float
    opt_adagrad_learning_rate_decay: float = 0.0
    opt_adagrad_initial_accumulator_value: float = 0.0
    opt_adagrad_epsilon: float = 1e-8
    opt_weight_decay: float = 0.0
    opt_learning_rate_warmup_steps: int = 0
    opt_learning_rate_decay_start_step: int = 0
    opt_learning_rate_decay_steps: int = 0


@dataclass(slots=True, kw_only=True)
class Model(recommendation.Model):
    """The shape of the network.

    multi_hot     rows of each table that a sample looks up, whose sum it gets
    cross_layers  of the cross network
    cross_rank    of their matrices
    """

    multi_hot: list[int]
    cross_layers: int = 3
    cross_rank: int = 512

    @property
    def lookups(self) -> list[int]:
        """Rows of each table that a sample looks up."""
        return self.multi_hot

    def refuse(self) -> str | None:
        """Refuse a table that is not looked up."""
        if len(self.multi_hot) != len(self.table_rows) or min(self.multi_hot, default=0) < 1:
            return (
                f"multi_hot is {self.multi_hot}; it has to say of each of the {len(self.table_rows)} tables how many "
                f"rows a sample looks up, at least 1."
            )
        return recommendation.Model.refuse(self)


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """The benchmark at any scale. `warm_up_steps` are taken on synthetic batches before the clock and then undone."""

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    warm_up_steps: int = 2

    GENERATES: ClassVar[tuple[str, ...]] = ("clicks",)

    TUNABLE: ClassVar[tuple[str, ...]] = (*task.BenchmarkConfig.TUNABLE, *recommendation.TUNABLE, "ruleset")
    """Rounds 3.0 to 6.0 define the same task."""

    SHARDED: ClassVar[bool] = True

    def parameter_count(self, ranks: int) -> task.ParameterCount:
        """The tables of the fullest rank; the dense part is small beside them."""
        return task.ParameterCount(trained=0, local=self.model.fullest(ranks))

    def refuse(self) -> str | None:
        """Refuse another optimizer or a schedule."""
        hyperparameters = self.hyperparameters
        if hyperparameters.opt_name != "adagrad":
            return f"opt_name is '{hyperparameters.opt_name}'; dlrm_dcnv2 trains with adagrad."
        for name in (
            "opt_weight_decay",
            "opt_learning_rate_warmup_steps",
            "opt_learning_rate_decay_start_step",
            "opt_learning_rate_decay_steps",
        ):
            if getattr(hyperparameters, name):
                return f"{name} is {getattr(hyperparameters, name)}; dlrm_dcnv2 has none, so it is 0."
        return self.model.refuse()
