"""Configuration of any click prediction benchmark. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of any network with embedding tables; a benchmark adds what is its own.

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

    def refuse(self) -> str | None:
        """A table has rows."""
        if not self.rows or min(self.rows) < 1:
            return f"The tables have {self.rows} rows; every one needs at least 1."
        return None


@dataclass(slots=True, kw_only=True)
class Data:
    """Source and reading of the click logs.

    origin            "criteo" or "clicks": what `prepare` knows how to read
    sha256            digest that the prepared records together must have; None: not checked
    verify            hash the records whenever they are opened; else only their sizes are compared
    eval_batch_size   samples per forward pass of a rank's evaluation
    workers           loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch          batches that each worker holds ready
    permute_labels    give every training sample the label of another one: nothing can be learnt
    """

    origin: str
    sha256: str | None = None
    verify: bool = False
    eval_batch_size: int = 16384
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


TUNABLE = ("data.verify", "data.eval_batch_size", "data.workers", "data.prefetch", "warm_up_steps")
"""Options that change neither the data nor what is learnt."""
