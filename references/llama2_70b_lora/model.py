"""Llama 2 with fused projections of queries, keys and values, and low-rank adapters (LoRA)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.parts.decoder.config import Model
from train_bench.references.parts.decoder.llama import Llama, attend


class Attention(nn.Module):
    """Causal self-attention in which several heads of queries share one of keys and values. Rows of `qkv_proj` are
    those of all queries, then keys, then values."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.head_size = shape.head_size
        inner, shared = shape.heads * shape.head_size, shape.key_value_heads * shape.head_size
        self.sizes = [inner, shared, shared]
        self.qkv_proj: nn.Module = nn.Linear(shape.width, sum(self.sizes), bias=False)
        self.o_proj: nn.Module = nn.Linear(inner, shape.width, bias=False)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(samples, length, width)."""
        query, key, value = self.qkv_proj(hidden).split(self.sizes, dim=2)
        output: Tensor = self.o_proj(attend(query, key, value, cosine, sine, head_size=self.head_size))
        return output


class Decoder(Llama):
    """Llama 2, as it is pretrained."""

    def __init__(self, shape: Model) -> None:
        super().__init__(shape, Attention)


class Adapted(nn.Module):
    """A linear layer whose weight W stays as it is, and a change of low rank that is trained (Hu et al., "LoRA:
    Low-Rank Adaptation of Large Language Models", 2021):

        W x + alpha / rank B A dropout(x)

    A (rank, inputs) starts from numbers that are even within 1 / sqrt(inputs), as layers of torch do, and B (outputs,
    rank) from 0, so that nothing is changed at first."""

    casts_weights = True

    def __init__(self, linear: nn.Linear, *, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.weight = linear.weight
        self.lora_A = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.lora_B = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        change = functional.linear(functional.linear(self.dropout(inputs), self.lora_A), self.lora_B)
        return functional.linear(inputs, self.weight) + self.scale * change

    @torch.no_grad()
    def merged(self) -> Tensor:
        """(outputs, inputs): the weight of a plain layer that answers the same."""
        return self.weight + self.scale * self.lora_B @ self.lora_A


def add_adapters(decoder: Decoder, *, rank: int, alpha: float, dropout: float) -> None:
    """Add adapters to the projections of every attention; afterwards only they are trained."""
    decoder.requires_grad_(False)
    for attention in decoder.modules():
        if isinstance(attention, Attention):
            for name in ("qkv_proj", "o_proj"):
                plain = getattr(attention, name)
                setattr(attention, name, Adapted(plain, rank=rank, alpha=alpha, dropout=dropout))
