"""DLRM with the cross network of DCN-V2 (Wang et al. 2021) after MLPerf Training v3.0 to v6.0."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from train_bench.references.dlrm_dcnv2.config import Model
from train_bench.references.parts.recommendation.network import logits_of, mlp
from train_bench.references.parts.recommendation.tables import Tables


class Network(nn.Module):
    """Tables, of which this rank holds some, and the dense network. `seed` draws the tables' weights; those of
    the dense network come from torch's generator."""

    def __init__(self, model: Model, *, seed: int, rank: int, ranks: int, device: torch.device) -> None:
        super().__init__()
        width = model.bottom[-1]
        self.tables = Tables(
            model.rows, width, seed=seed, rank=rank, ranks=ranks, device=device, hot=model.multi_hot
        )
        self.dense = Dense(model).to(device)

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        """float32 logits (b,) of this rank's share from dense features (b, features) and int64 (b, rows looked up)."""
        logits: Tensor = self.dense(dense, self.tables(indices))
        return logits


class Dense(nn.Module):
    """Bottom MLP, cross network over its output and all embeddings, top MLP. Returns logits; the sigmoid is in the
    loss. Weights of the MLPs are those that torch's layers begin with."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = (1 + len(model.rows)) * model.bottom[-1]
        self.bottom = mlp([model.dense_features, *model.bottom])
        self.cross = nn.ModuleList(CrossLayer(width, model.cross_rank) for _ in range(model.cross_layers))
        self.top = mlp([width, *model.top[:-1]])
        self.last = nn.Linear(model.top[-2], model.top[-1])

    def forward(self, dense: Tensor, embeddings: Sequence[Tensor]) -> Tensor:
        """float32 logits (b,) from the dense features (b, features) and an embedding (b, d) per table."""
        lowest = self.bottom(dense)
        first = torch.cat([lowest, *(vector.to(lowest.dtype) for vector in embeddings)], dim=1)
        crossed = first
        for layer in self.cross:
            crossed = layer(first, crossed)
        high = self.top(crossed)
        return logits_of(high, self.last)


class CrossLayer(nn.Module):
    """x0 (U (V x) + b) + x, elementwise but for the matrices V (rank, width) and U (width, rank) (DCN-V2, equation 2).
    Both start from Xavier's normal distribution, the bias from 0."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width)
        for layer in (self.up, self.down):
            nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, first: Tensor, inputs: Tensor) -> Tensor:
        """(b, width) from the first layer's input and this layer's input."""
        return first * self.up(self.down(inputs)) + inputs
