"""Configuration of any click prediction benchmark. No heavy imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SLACK = 1.1
"""Rows that a rank may hold, over those of the fullest rank where tables are divided by rows alone."""


def place(rows: Sequence[int], hot: Sequence[int], ranks: int) -> list[list[int]]:
    """The tables of each rank, in ascending order. Time is in lookups and memory in rows: the table with the most
    lookups first, each to the rank with the fewest lookups so far that has room for its rows. A rank may have none."""
    by_rows = _greedy(rows, [0] * len(rows), ranks, room=0.0)
    room = SLACK * max(sum(rows[table] for table in tables) for tables in by_rows)
    return [sorted(tables) for tables in _greedy(rows, hot, ranks, room=room)]


def _greedy(rows: Sequence[int], hot: Sequence[int], ranks: int, *, room: float) -> list[list[int]]:
    """Where no rank has room, a table goes to the one with the fewest rows."""
    owned: list[list[int]] = [[] for _ in range(ranks)]
    held, lookups = [0] * ranks, [0] * ranks
    for table in sorted(range(len(rows)), key=lambda table: (-hot[table], -rows[table])):
        roomy = [rank for rank in range(ranks) if held[rank] + rows[table] <= room]
        rank = min(roomy or range(ranks), key=lambda one: (lookups[one] if roomy else 0, held[one]))
        owned[rank].append(table)
        held[rank] += rows[table]
        lookups[rank] += hot[table]
    return owned


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

    @property
    def lookups(self) -> list[int]:
        """Rows of each table that a sample looks up."""
        return [1] * len(self.table_rows)

    def fullest(self, ranks: int) -> int:
        """Parameters of the tables of the fullest of so many ranks."""
        return self.bottom[-1] * max(
            sum(self.rows[table] for table in own) for own in place(self.rows, self.lookups, ranks)
        )

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
