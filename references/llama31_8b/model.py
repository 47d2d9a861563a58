"""Llama 3.1: rotations that are slowed for long contexts, and projections of attention apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from train_bench.references.llama31_8b.config import Model
from train_bench.references.parts.decoder.llama import Llama, attend
from train_bench.references.parts.decoder.rotary import plain_frequencies


def frequencies(shape: Model, like: Tensor) -> Tensor:
    """(head size / 2,): radians per position, `base ** (-2 i / head size)`, of which the slow ones are slowed further
    (Llama 3.1): those whose wave is longer than `old_context / low_frequency` by `rope_factor`, those shorter than
    `old_context / high_frequency` not, and those between by a mean that moves with the number of waves in the old
    context. A `rope_factor` of 1 changes none."""
    plain = plain_frequencies(shape.rope_base, shape.head_size, like)
    waves = shape.old_context * plain / (2 * math.pi)
    share = (waves - shape.low_frequency) / (shape.high_frequency - shape.low_frequency)
    share = share.clamp(0.0, 1.0)
    return (1.0 - share) * plain / shape.rope_factor + share * plain


class Attention(nn.Module):
    """Causal self-attention in which several heads of queries share one of keys and values."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.head_size = shape.head_size
        inner, shared = shape.heads * shape.head_size, shape.key_value_heads * shape.head_size
        self.q_proj = nn.Linear(shape.width, inner, bias=False)
        self.k_proj = nn.Linear(shape.width, shared, bias=False)
        self.v_proj = nn.Linear(shape.width, shared, bias=False)
        self.o_proj = nn.Linear(inner, shape.width, bias=False)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(samples, length, width)."""
        query, key, value = (part(hidden) for part in (self.q_proj, self.k_proj, self.v_proj))
        output: Tensor = self.o_proj(attend(query, key, value, cosine, sine, head_size=self.head_size))
        return output


class Decoder(Llama):
    """Grattafiori et al., "The Llama 3 Herd of Models" (2024), with the positions of version 3.1."""

    shape: Model

    tensor_parallel: ClassVar[Mapping[str, str]] = {
        "embed_tokens": "gathered columns",
        **{f"layers.*.self_attn.{name}_proj": "columns" for name in "qkv"},
        "layers.*.self_attn.o_proj": "rows",
        "layers.*.mlp.gate_proj": "columns",
        "layers.*.mlp.up_proj": "columns",
        "layers.*.mlp.down_proj": "rows",
        "lm_head": "gathered columns",
    }
    """Division of layers among ranks (`train_bench/launchers/parts/tensor_parallel.py`): each has some of the heads."""

    def __init__(self, shape: Model) -> None:
        super().__init__(shape, Attention)

    def _frequencies(self, like: Tensor) -> Tensor:
        return frequencies(self.shape, like)
