"""What may be asked of the recommendation benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from train_bench import task


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
class Model:
    """The shape of the network.

    dense_features  number of them
    bottom          outputs of the bottom MLP's layers; the last one is the width of the embeddings
    top             outputs of the top MLP's layers; the last one is 1
    table_rows      values of each categorical feature, in the order of the features
    max_table_rows  larger tables are cut to so many rows, and values are taken modulo that; None: no table is
    """

    dense_features: int = 13
    bottom: list[int]
    top: list[int]
    table_rows: list[int]
    max_table_rows: int | None = None

    @property
    def rows(self) -> list[int]:
        """Rows of each table as it is built."""
        return [min(rows, self.max_table_rows or rows) for rows in self.table_rows]


@dataclass(slots=True, kw_only=True)
class Data:
    """Where the click logs come from and how they are read.

    origin            "criteo" or "clicks": what `prepare` knows how to read
    max_index         categorical values of Criteo are taken modulo this before they are numbered
    sha256            digest that the prepared records together must have; None: not checked
    verify            hash the records whenever they are opened; else only their sizes are compared
    eval_batch_size   samples per forward pass of a rank's evaluation
    workers           loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch          batches that each worker holds ready
    permute_labels    give every training sample the label of another one: nothing can be learnt
    """

    origin: str
    max_index: int = 40_000_000
    sha256: str | None = None
    verify: bool = False
    eval_batch_size: int = 16384
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """The recommendation benchmark at any scale. `warm_up_steps` are taken on synthetic batches before the
    clock and then undone."""

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    warm_up_steps: int = 2

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("data.verify", "data.eval_batch_size", "data.workers", "data.prefetch", "warm_up_steps"),
    )

    SHARDED: ClassVar[bool] = True

    def refuse(self) -> str | None:
        """The schedule has an order (reference: the warm-up ends before the decay starts), a table has rows."""
        hyperparameters, model = self.hyperparameters, self.model
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
        if not model.rows or min(model.rows) < 1:
            return f"The tables have {model.rows} rows; every one needs at least 1."
        return None
