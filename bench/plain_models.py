"""Networks and losses as in a tutorial: the baselines of `references.py`."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class PlainBert(nn.Module):
    """BERT of torch's own encoder layers, which scores all words at every position, masked or not."""

    def __init__(self, shape: Any) -> None:
        super().__init__()
        width = shape.width
        self.word = nn.Embedding(shape.vocabulary, width)
        self.position = nn.Embedding(shape.positions, width)
        self.token_type = nn.Embedding(shape.token_types, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(shape.dropout)
        layer = nn.TransformerEncoderLayer(
            width, shape.heads, shape.intermediate, shape.dropout, _gelu, 1e-12, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, shape.layers, enable_nested_tensor=False)
        self.transform = nn.Sequential(
            nn.Linear(width, width), nn.GELU("tanh"), nn.LayerNorm(width, eps=1e-12)
        )
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))
        self.pooler, self.sentences = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, tokens: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(samples, length, vocabulary) and (samples, 2) logits."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.word(tokens) + self.position(places) + self.token_type(segments)
        padding = places >= lengths.unsqueeze(1)
        hidden = self.encoder(self.dropout(self.norm(hidden)), src_key_padding_mask=padding)
        words = functional.linear(self.transform(hidden), self.word.weight, self.bias)
        return words, self.sentences(torch.tanh(self.pooler(hidden[:, 0])))


def _gelu(values: Tensor) -> Tensor:
    return functional.gelu(values, approximate="tanh")


class PlainDLRM(nn.Module):
    """DLRM with all tables on one rank."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        width, vectors = model.bottom[-1], len(model.rows) + 1
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for rows in model.rows
        )
        self.bottom = _layers([model.dense_features, *model.bottom])
        self.top = _layers([width + vectors * (vectors - 1) // 2, *model.top])[:-1]
        self.rows, self.columns = torch.tril_indices(vectors, vectors, offset=-1)

    def forward(self, dense: Tensor, rows: Tensor) -> Tensor:
        """(samples,) logits."""
        lowest = self.bottom(dense)
        embeddings = [table(rows[:, [number]]) for number, table in enumerate(self.tables)]
        vectors = torch.stack([lowest, *embeddings], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.rows, self.columns]
        logits: Tensor = self.top(torch.cat([lowest, products], dim=1))
        return logits.squeeze(1)


class PlainDCNv2(nn.Module):
    """DLRM-DCNv2 with all tables on one rank, each of which adds up the rows of a sample."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        width = model.bottom[-1]
        inner = width * (len(model.rows) + 1)
        self.hot = list(model.multi_hot)
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for rows in model.rows
        )
        self.bottom = _layers([model.dense_features, *model.bottom])
        self.down = nn.ModuleList(
            nn.Linear(inner, model.cross_rank, bias=False) for _ in range(model.cross_layers)
        )
        self.up = nn.ModuleList(nn.Linear(model.cross_rank, inner) for _ in range(model.cross_layers))
        self.top = _layers([inner, *model.top])[:-1]

    def forward(self, dense: Tensor, rows: Tensor) -> Tensor:
        """(samples,) logits."""
        looked_up = zip(self.tables, rows.split(self.hot, dim=1), strict=True)
        first = torch.cat([self.bottom(dense), *(table(each) for table, each in looked_up)], dim=1)
        crossed = first
        for down, up in zip(self.down, self.up, strict=True):
            crossed = first * up(down(crossed)) + crossed
        logits: Tensor = self.top(crossed)
        return logits.squeeze(1)


class LowRank(nn.Module):
    """A frozen linear layer and a change of low rank, in two layers of its own."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.linear, self.dropout, self.scale = linear, nn.Dropout(dropout), alpha / rank
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        changed: Tensor = self.linear(inputs) + self.scale * self.up(self.down(self.dropout(inputs)))
        return changed


def adapt(attention: nn.Module, rank: int, alpha: float, dropout: float) -> None:
    """Give each projection of an attention of `transformers` a change of low rank."""
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        setattr(attention, name, LowRank(getattr(attention, name), rank, alpha, dropout))


def _layers(sizes: list[int]) -> nn.Sequential:
    """Linear layers with a ReLU after each."""
    pairs = itertools.pairwise(sizes)
    return nn.Sequential(*(layer for ends in pairs for layer in (nn.Linear(*ends), nn.ReLU())))


def plain_transducer_loss(logits: Tensor, labels: Tensor, *, blank: int) -> Tensor:
    """The negative log-likelihood of one transcript: log-softmax of everything, and the forward variables frame by
    frame (Graves 2012, equations 16 and 17), of which autograd makes the gradient.

    `logits` (1, T, U + 1, V), `labels` (1, U). Within a frame the sum over paths is a cumulative log-sum.
    """
    scores = functional.log_softmax(logits[0], dim=-1)
    by_blank = scores[..., blank]
    by_label = scores[:, :-1].gather(-1, labels[0].expand(len(scores), -1).unsqueeze(-1)).squeeze(-1)
    along = functional.pad(by_label.cumsum(dim=1), (1, 0))
    forward = along[0]
    for frame in range(1, len(scores)):
        entered = forward + by_blank[frame - 1]
        forward = along[frame] + torch.logcumsumexp(entered - along[frame], dim=0)
    return -(forward[-1] + by_blank[-1, -1])
