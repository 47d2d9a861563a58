"""The dense part of DLRM (Naumov et al. 2019), as MLPerf Training v1.1 defines it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Dense(nn.Module):
    """Bottom MLP, pairwise dot products, top MLP. Returns logits; the sigmoid is in the loss.

    bottom   inputs and outputs of the bottom MLP's layers, the last one the width of the embeddings
    top      outputs of the top MLP's layers, the last one 1
    """

    def __init__(self, bottom: Sequence[int], top: Sequence[int], tables: int) -> None:
        super().__init__()
        vectors = tables + 1
        pairs = vectors * (vectors - 1) // 2
        self.bottom = _mlp(bottom, last_is_linear=False)
        self.top = _mlp([bottom[-1] + pairs, *top], last_is_linear=True)
        rows, columns = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("_pairs", rows * vectors + columns, persistent=False)

    def forward(self, dense: Tensor, embeddings: Tensor) -> Tensor:
        """Logits (b,) from the dense features (b, features) and the embeddings (b, tables, d)."""
        lowest = self.bottom(dense)
        vectors = torch.cat([lowest[:, None], embeddings.to(lowest.dtype)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        logits: Tensor = self.top(torch.cat([lowest, products[:, self._pairs]], dim=1))
        return logits.squeeze(1)


def _mlp(sizes: Sequence[int], *, last_is_linear: bool) -> nn.Sequential:
    """Weights from N(0, sqrt(2 / (m + n))), biases from N(0, sqrt(1 / m)) for n inputs and m outputs."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        linear = nn.Linear(inputs, outputs)
        nn.init.normal_(linear.weight, std=(2 / (inputs + outputs)) ** 0.5)
        nn.init.normal_(linear.bias, std=(1 / outputs) ** 0.5)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1] if last_is_linear else layers)
