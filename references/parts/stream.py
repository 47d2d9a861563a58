"""Sample order: the samples that a rank trains and evaluates on, by position.

Training: an `Order` says what stands at each position of one endless stream that all ranks share, and iteration k
trains on positions k GBS to (k + 1) GBS of it, so that every batch is full. `Sampler` gives each rank its part. Both
are functions of the seed and the position alone, never of the number of ranks, of micro-batches or of loader
processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from train_bench.errors import RequestError
from train_bench.seeds import derive
from train_bench.task import Hyperparameters


class Order(ABC):
    """Samples at positions 0, 1, 2, ... of a run."""

    @property
    def epoch(self) -> int | None:
        """Samples within which none comes twice; None where one may."""
        return None

    @property
    def carried(self) -> int:
        """Samples of an epoch that may come again in the next one's length."""
        return 0

    @abstractmethod
    def items(self, parts: Iterable[range]) -> Iterator[list[Any]]:
        """For each part, a range of positions within a global batch, the items of the data set. Parts come in ascending
        order, each once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Training sampler of one rank: the items of each of its micro-batches, from iteration `first_iteration` on,
    without end. A micro-batch is `global_batch_size` / (`microbatches` x `ranks`) neighbouring positions."""

    order: Order
    global_batch_size: int
    microbatches: int
    rank: int
    ranks: int
    first_iteration: int = 0

    def __iter__(self) -> Iterator[list[Any]]:
        return self.order.items(self._parts())

    def _parts(self) -> Iterator[range]:
        local = self.global_batch_size // (self.microbatches * self.ranks)
        start = self.first_iteration * self.global_batch_size + self.rank * local
        while True:
            yield range(start, start + local)
            start += local * self.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled(Order):
    """Every epoch is a fresh random permutation, and a batch may span two epochs (rules, "Data": mixed batch)."""

    samples: int
    seed: int

    @property
    def epoch(self) -> int:
        """Every example comes once in an epoch."""
        return self.samples

    def items(self, parts: Iterable[range]) -> Iterator[list[tuple[int, int]]]:
        """Pairs of an example's index and its position."""

        def permutation(epoch: int) -> np.ndarray:
            return np.random.default_rng(derive(self.seed, "order", epoch)).permutation(self.samples)

        return epoch_by_epoch(parts, self.samples, permutation)


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder(Order):
    """Every epoch takes the samples as they are stored, and a batch may span two epochs."""

    samples: int

    @property
    def epoch(self) -> int:
        """Every example comes once in an epoch."""
        return self.samples

    def items(self, parts: Iterable[range]) -> Iterator[list[tuple[int, int]]]:
        """Pairs of an example's index and its position."""
        for part in parts:
            yield [(position % self.samples, position) for position in part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternating(Order):
    """One sample of each part of the set in turn, each part in a fresh random permutation in every epoch. An epoch ends
    with the smallest part; of the others it takes as many.

    parts   samples of each part; they follow each other in the set
    """

    parts: tuple[int, ...]
    seed: int

    @property
    def epoch(self) -> int:
        """As many samples of each part as the smallest has."""
        return len(self.parts) * min(self.parts)

    def items(self, parts: Iterable[range]) -> Iterator[list[tuple[int, int]]]:
        """Pairs of an example's index and its position."""
        return epoch_by_epoch(parts, self.epoch, self._interleaved)

    def _interleaved(self, epoch: int) -> np.ndarray:
        starts = np.cumsum([0, *self.parts[:-1]])
        orders = [
            start + np.random.default_rng(derive(self.seed, "order", epoch, part)).permutation(samples)
            for part, (start, samples) in enumerate(zip(starts, self.parts, strict=True))
        ]
        return np.stack([order[: min(self.parts)] for order in orders], axis=1).ravel()


def epoch_by_epoch(
    parts: Iterable[range], samples: int, epoch_order: Callable[[int], np.ndarray]
) -> Iterator[list[tuple[int, int]]]:
    """Pairs (index, position), where epoch e = 0, 1, ... goes through `epoch_order(e)`, an int64 array (samples,)."""
    epoch, order = -1, np.zeros(0, dtype=np.int64)
    for part in parts:
        batch = []
        for position in part:
            if position // samples != epoch:
                epoch = position // samples
                order = epoch_order(epoch)
            batch.append((int(order[position % samples]), position))
        yield batch


def evaluation_order(
    samples: int, batch_size: int, rank: int, ranks: int, *, padded: bool = True
) -> list[list[int]]:
    """The batches of indices of one rank; over all ranks every index comes once. The last batch is short, or with
    `padded` filled with the index `samples` as padding; then all ranks have equally many batches."""
    mine = list(range(rank, samples, ranks))
    if padded:
        batches = -(-samples // (ranks * batch_size))
        mine += [samples] * (batches * batch_size - len(mine))
    return [mine[first : first + batch_size] for first in range(0, len(mine), batch_size)]


def refuse_uneven_batches(hyperparameters: Hyperparameters, ranks: int) -> None:
    """Ranks and micro-batches have to share the global batch evenly."""
    total, steps = hyperparameters.global_batch_size, hyperparameters.gradient_accumulation_steps
    if total % (ranks * steps) or total < ranks * steps:
        raise RequestError(
            f"global_batch_size {total} cannot be divided among {ranks} ranks with {steps} micro-batches each; "
            f"choose a multiple of {ranks * steps}."
        )
