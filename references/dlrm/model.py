"""DLRM (Naumov et al. 2019) after MLPerf Training v1.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.parts.recommendation.config import Model
from train_bench.references.parts.recommendation.network import logits_of, mlp
from train_bench.references.parts.recommendation.tables import Tables


class DLRM(nn.Module):
    """Tables, of which this rank holds some, and the dense network. `seed` draws the tables' weights; those of
    the dense network come from torch's generator."""

    def __init__(self, model: Model, *, seed: int, rank: int, ranks: int, device: torch.device) -> None:
        super().__init__()
        width = model.bottom[-1]
        self.tables = Tables(model.rows, width, seed=seed, rank=rank, ranks=ranks, device=device)
        self.dense = Dense([model.dense_features, *model.bottom], model.top, len(model.rows)).to(device)

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        """float32 logits (b,) of this rank's share from dense features (b, features) and int64 (b, tables)."""
        logits: Tensor = self.dense(dense, self.tables(indices))
        return logits


class Dense(nn.Module):
    """Bottom MLP, pairwise dot products, top MLP. Returns logits; the sigmoid is in the loss.

    bottom   inputs and outputs of the bottom MLP's layers, the last one the width of the embeddings
    top      outputs of the top MLP's layers, the last one 1
    """

    def __init__(self, bottom: Sequence[int], top: Sequence[int], tables: int) -> None:
        super().__init__()
        vectors = tables + 1
        pairs = vectors * (vectors - 1) // 2
        self.bottom = mlp(bottom, _linear)
        self.top = mlp([bottom[-1] + pairs, *top[:-1]], _linear)
        self.last = _linear(top[-2], top[-1])
        rows, columns = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("_pairs", rows * vectors + columns, persistent=False)
        places = torch.full((vectors, vectors), pairs)
        places[rows, columns] = places[columns, rows] = torch.arange(pairs)
        self.register_buffer("_places", places.flatten(), persistent=False)

    def forward(self, dense: Tensor, embeddings: Sequence[Tensor]) -> Tensor:
        """float32 logits (b,) from the dense features (b, features) and an embedding (b, d) per table."""
        lowest = self.bottom(dense)
        vectors = torch.stack([lowest, *(vector.to(lowest.dtype) for vector in embeddings)], dim=1)
        products = _Products.apply(vectors, self._pairs, self._places)
        high = self.top(torch.cat([lowest, products], dim=1))
        return logits_of(high, self.last)


class _Products(torch.autograd.Function):
    """Dot products (b, pairs) of all pairs of vectors (b, n, d). As the matrix of products is symmetric, its
    gradient is one product of matrices, where that of `bmm` takes two.

    pairs    where each pair stands in the flattened matrix (n, n)
    places   which pair stands at each place of that matrix; on the diagonal, the number of pairs
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, pairs: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, places)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        vectors, places = ctx.saved_tensors
        count = vectors.shape[1]
        matrix = functional.pad(gradients[0], (0, 1)).index_select(1, places).view(-1, count, count)
        return torch.bmm(matrix, vectors), None, None


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """Weights from N(0, sqrt(2 / (m + n))), biases from N(0, sqrt(1 / m)) for n inputs and m outputs."""
    linear = nn.Linear(inputs, outputs)
    nn.init.normal_(linear.weight, std=(2 / (inputs + outputs)) ** 0.5)
    nn.init.normal_(linear.bias, std=(1 / outputs) ** 0.5)
    return linear


def tensor_names(model: Model) -> list[str]:
    """Names of the initialised tensors in the rules: one for all tables, one per layer."""
    bottom = [f"bottom_mlp_dense{number}" for number in range(1, len(model.bottom) + 1)]
    return ["embeddings", *bottom, *(f"top_mlp_dense{number}" for number in range(1, len(model.top) + 1))]
