"""A Parallel for one process in fp32, and one for several ranks that are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from train_bench.check import one_rank
from train_bench.launchers.parts.ddp import whole_state


class OneRank(one_rank.OneRank):
    """As `check` has it, with the state that launchers compare."""

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        return whole_state(self.model, self.optimizer, self.local)


class Exchange:
    """Where ranks that are threads of this process bring what they have."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.brought: dict[int, Any] = {}

    def all(self, rank: int, value: Any) -> list[Any]:
        """What every rank brought, in order of rank."""
        self.brought[rank] = value
        self.barrier.wait()
        found = [self.brought[number] for number in sorted(self.brought)]
        self.barrier.wait()
        return found


class OneOfSeveral(OneRank):
    """A rank that adds up and gathers with the others; for evaluations, as gradients stay its own."""

    def __init__(self, exchange: Exchange, *, rank: int, size: int) -> None:
        super().__init__(rank=rank, size=size)
        self.exchange = exchange

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return torch.stack(self.exchange.all(self.rank, value)).sum(dim=0)

    def gather_objects(self, value: Any) -> list[Any] | None:
        found = self.exchange.all(self.rank, value)
        return found if self.rank == 0 else None

    def from_rank_zero(self, value: Any) -> Any:
        return self.exchange.all(self.rank, value)[0]


class Averaging(OneOfSeveral):
    """A rank that trains with the others: gradients are averaged."""

    def step(self, *, clip_norm: float | None = None) -> bool:
        for parameter in self.model.parameters():
            if parameter.grad is not None and id(parameter) not in self.local:
                parameter.grad = self.sum(parameter.grad) / self.size
        return super().step(clip_norm=clip_norm)


def in_threads(ranks: int, work: Callable[[Any], Any], kind: type[OneOfSeveral] = OneOfSeveral) -> list[Any]:
    """What `work` returns on each of several ranks of a kind that run at the same time."""
    exchange = Exchange(ranks)
    members = [kind(exchange, rank=rank, size=ranks) for rank in range(ranks)]
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(work, members))
