"""The order of a run where every example counts alike: epochs follow each other in one endless stream.

Every epoch is a fresh random permutation, and step k trains on positions k GBS to (k + 1) GBS of the stream.
A batch may so span two epochs (rules, "Data": mixed batch); every example comes exactly once per epoch and
every batch is full. The order is a function of the seed and the position alone, never of the number of
ranks, of micro-batches or of loader processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from train_bench.seeds import derive


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Positions of the stream that one rank trains on, a list per micro-batch, from `first_step` on."""

    samples: int
    seed: int
    global_batch_size: int
    microbatches: int
    rank: int
    ranks: int
    first_step: int = 0

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


class Asked(Protocol):
    """What a configuration says about loading: processes per rank, and batches that each one holds ready."""

    workers: int | None
    prefetch: int


def loader(dataset: Dataset, asked: Asked, device: torch.device, **order: Any) -> DataLoader:
    """Examples of `dataset` in the order of `order` (a `sampler`, or what else `DataLoader` takes), from as many
    processes as asked. Where that is None, on a GPU one for every processor of the rank but one, and on a CPU none,
    as training takes them all there."""
    workers = asked.workers
    if workers is None:
        workers = max(1, torch.get_num_threads() - 1) if device.type == "cuda" else 0
    return DataLoader(
        dataset,
        num_workers=workers,
        prefetch_factor=asked.prefetch if workers else None,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
        **order,
    )
