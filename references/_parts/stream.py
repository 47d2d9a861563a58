"""The order of a run where every example counts alike: epochs follow each other in one endless stream.

Every epoch is a fresh random permutation, and step k trains on positions k GBS to (k + 1) GBS of the stream.
A batch may so span two epochs (rules, "Data": mixed batch); every example comes exactly once per epoch and
every batch is full. The order is a function of the seed and the position alone, never of the number of
ranks, of micro-batches or of loader processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from train_bench.errors import RequestError
from train_bench.seeds import derive
from train_bench.task import BenchmarkConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOrder:
    """What one rank trains on, a list of items per micro-batch, from `first_step` on."""

    global_batch_size: int
    microbatches: int
    rank: int
    ranks: int
    first_step: int = 0

    @property
    def epoch(self) -> int | None:
        """Samples of an epoch, in which none comes twice; None where none ever does."""
        return None

    @property
    def carried(self) -> int:
        """Samples of an epoch that may come again in the next one's length."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(TrainingOrder):
    """The order described above."""

    samples: int
    seed: int

    @property
    def epoch(self) -> int:
        """Every example comes once in an epoch."""
        return self.samples

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """Micro-batches of (index of the example, its position in the stream), without end."""
        share = self.global_batch_size // (self.microbatches * self.ranks)
        epoch, order = -1, np.zeros(0, dtype=np.int64)
        start = self.first_step * self.global_batch_size + self.rank * share
        while True:
            batch = []
            for position in range(start, start + share):
                if position // self.samples != epoch:
                    epoch = position // self.samples
                    order = np.random.default_rng(derive(self.seed, "order", epoch)).permutation(self.samples)
                batch.append((int(order[position % self.samples]), position))
            yield batch
            start += share * self.ranks


def evaluation_order(samples: int, batch_size: int, rank: int, ranks: int) -> list[list[int]]:
    """Every index once over all ranks, in full batches; what fills the last one is >= `samples`."""
    mine = list(range(rank, samples, ranks))
    mine += [samples] * (-len(mine) % batch_size)
    return [mine[first : first + batch_size] for first in range(0, len(mine), batch_size)]


def refuse_uneven_batches(config: BenchmarkConfig, ranks: int) -> None:
    """Ranks and micro-batches have to share the global batch evenly."""
    total = config.hyperparameters.global_batch_size
    steps = config.hyperparameters.gradient_accumulation_steps
    if total % (ranks * steps) or total < ranks * steps:
        raise RequestError(
            f"global_batch_size {total} cannot be divided among {ranks} ranks with {steps} micro-batches each; "
            f"choose a multiple of {ranks * steps}."
        )
