"""Embedding tables divided among ranks, whole tables each, and the all-to-all exchange of looked-up rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn

from train_bench.references.parts.recommendation.config import place
from train_bench.seeds import derive


class _Exchange(torch.autograd.Function):
    """All-to-all from (ranks * b, own tables, d) of the global batch to (b, all tables, d) of this rank's share."""

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
    they do not depend on the number of ranks. Gradients are sparse. A row that a batch looks up twice gets
    the sum of both gradients: plain SGD adds them one by one, which comes to the same.

    rows   of each table
    width  of a row
    hot    how many rows of each table a sample looks up, whose sum it gets; None is one of each
    """

    def __init__(
        self,
        rows: Sequence[int],
        width: int,
        *,
        seed: int,
        rank: int,
        ranks: int,
        device: torch.device,
        hot: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self._hot = list(hot or [1] * len(rows))
        self._placed = place(rows, self._hot, ranks)
        self._rank = rank
        order = [table for tables in self._placed for table in tables]
        self._back = [order.index(table) for table in range(len(rows))]
        self._width = width
        self.weights = nn.ParameterDict()
        for table in self._placed[rank]:
            limit = rows[table] ** -0.5
            generator = torch.Generator(device).manual_seed(derive(seed, "table", table))
            weight = torch.empty(rows[table], width, device=device)
            self.weights[str(table)] = nn.Parameter(weight.uniform_(-limit, limit, generator=generator))

    def forward(self, indices: Tensor) -> list[Tensor]:
        """float32 (b, d) per table from int64 (b, all that a sample looks up, table after table), both of this rank's
        share of the batch."""
        if len(self._placed) == 1:
            return self._look_up(indices)
        whole = self._share_indices(indices)
        looked_up = self._look_up(whole)
        own = (
            torch.stack(looked_up, dim=1)
            if looked_up
            # A rank without tables takes part in the exchange of the gradients, too.
            else torch.empty(len(whole), 0, self._width, device=indices.device, requires_grad=True)
        )
        exchanged = _Exchange.apply(own, [len(tables) for tables in self._placed]).unbind(dim=1)
        return [exchanged[place] for place in self._back]

    def _look_up(self, own: Tensor) -> list[Tensor]:
        columns = own.split([self._hot[int(table)] for table in self.weights], dim=1)
        return [
            nn.functional.embedding(rows.squeeze(1), weight, sparse=True)
            if rows.shape[1] == 1
            else nn.functional.embedding_bag(rows, weight, mode="sum", sparse=True)
            for rows, weight in zip(columns, self.weights.values(), strict=True)
        ]

    def _share_indices(self, indices: Tensor) -> Tensor:
        """int64 (ranks * b, looked up in own tables): what all ranks look up in this rank's tables."""
        columns = indices.split(self._hot, dim=1)
        sent = [
            torch.cat([columns[table] for table in tables], dim=1) if tables else indices[:, :0]
            for tables in self._placed
        ]
        received = [torch.empty_like(sent[self._rank]) for _ in self._placed]
        _swap(received, sent)
        return torch.cat(received)

    @contextmanager
    def kept(self, indices: Tensor, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Afterwards the rows that `indices` name are as they were, in the tables and in what the optimizer keeps of
        them, and so are its counts; the others must not be changed. Tables are too large for a second copy."""
        columns = indices.split(self._hot, dim=1)
        rows = {table: columns[int(table)].unique() for table in self.weights}
        held = {
            table: [weight.detach(), *(value for value in optimizer.state.get(weight, {}).values())]
            for table, weight in self.weights.items()
        }
        before = {
            table: [_rows(tensor, rows[table]).clone() for tensor in tensors]
            for table, tensors in held.items()
        }
        try:
            yield
        finally:
            for table, tensors in held.items():
                for tensor, values in zip(tensors, before[table], strict=True):
                    _put_rows(tensor, rows[table], values)


def _rows(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor[rows] if tensor.dim() else tensor


def _put_rows(tensor: Tensor, rows: Tensor, values: Tensor) -> None:
    if tensor.dim():
        tensor[rows] = values
    else:
        tensor.copy_(values)
