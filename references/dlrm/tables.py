"""Embedding tables that are divided among ranks, whole tables each, and the exchange of what they look up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn


def place(rows: Sequence[int], ranks: int) -> list[list[int]]:
    """The tables of each rank, in ascending order: the largest first, each to the rank with the fewest rows
    so far. A rank may have none."""
    owned: list[list[int]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    for table in sorted(range(len(rows)), key=lambda table: -rows[table]):
        rank = load.index(min(load))
        owned[rank].append(table)
        load[rank] += rows[table]
    return [sorted(tables) for tables in owned]


class _Exchange(torch.autograd.Function):
    """From (ranks * b, own tables, d) of the global batch to (b, all tables, d) of this rank's share."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, counts: list[int]) -> Tensor:
        ranks = len(counts)
        share, width = own.shape[0] // ranks, own.shape[2]
        ctx.counts, ctx.shape = counts, own.shape
        parts = [own.new_empty(share, count, width) for count in counts]
        _swap(parts, [part.contiguous() for part in own.chunk(ranks)])
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        counts = ctx.counts
        ranks = len(counts)
        share, own, width = ctx.shape[0] // ranks, ctx.shape[1], ctx.shape[2]
        parts = [gradients[0].new_empty(share, own, width) for _ in range(ranks)]
        _swap(parts, [part.contiguous() for part in gradients[0].split(counts, dim=1)])
        # Each rank's loss is the mean over its share. What the dense part gets by averaging over ranks,
        # tables that live on one rank only have to get here: the mean over the global batch.
        return torch.cat(parts) / ranks, None


def _swap(received: list[Tensor], sent: list[Tensor]) -> None:
    """All to all of flat pieces, which may be empty."""
    into = received[0].new_empty(sum(part.numel() for part in received))
    distributed.all_to_all_single(
        into,
        torch.cat([part.flatten() for part in sent]),
        [part.numel() for part in received],
        [part.numel() for part in sent],
    )
    for part, piece in zip(received, into.split([part.numel() for part in received]), strict=True):
        part.copy_(piece.view_as(part))


class Tables(nn.Module):
    """All tables of the model, of which this rank holds those of `place`. Their parameters are `local_params`
    of `Parallel.wrap`. Weights are U(-sqrt(1/n), sqrt(1/n)) for n rows, from a generator per table, so that
    they do not depend on the number of ranks. Gradients are sparse; coalesce them before an update."""

    def __init__(self, rows: Sequence[int], width: int, *, seed: int, rank: int, ranks: int) -> None:
        super().__init__()
        placed = place(rows, ranks)
        self._owned = placed[rank]
        self._counts = [len(tables) for tables in placed]
        order = [table for tables in placed for table in tables]
        self._back = [order.index(table) for table in range(len(rows))]
        self._width = width
        self.weights = nn.ParameterDict()
        for table in self._owned:
            limit = rows[table] ** -0.5
            generator = torch.Generator().manual_seed((seed * 1000003 + table) % 2**63)
            weight = torch.empty(rows[table], width).uniform_(-limit, limit, generator=generator)
            self.weights[str(table)] = nn.Parameter(weight)

    def forward(self, indices: Tensor) -> Tensor:
        """(b, tables, d) float32 of this rank's share from int64 (ranks * b, tables) of the global batch,
        whose shares lie one after the other in the order of ranks."""
        looked_up = [
            nn.functional.embedding(indices[:, table], self.weights[str(table)], sparse=True)
            for table in self._owned
        ]
        if len(self._counts) == 1:
            return torch.stack(looked_up, dim=1)
        device = indices.device
        own = (
            torch.stack(looked_up, dim=1)
            if looked_up
            # A rank without tables takes part in the exchange of the gradients, too.
            else torch.empty(len(indices), 0, self._width, device=device, requires_grad=True)
        )
        exchanged: Tensor = _Exchange.apply(own, self._counts)  # type: ignore[no-untyped-call]
        return exchanged[:, self._back]
