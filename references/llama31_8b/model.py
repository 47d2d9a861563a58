"""Llama 3.1: a decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU, without biases; the output
layer is not the embedding."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.llama31_8b.config import Model
from train_bench.references.parts.decoder.rotary import plain_frequencies, rotated, rotations

DEVIATION = 0.02
"""Standard deviation of the normal that weights start from; layers whose output is added to the stream are smaller by
the square root of how many there are."""


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
        self.sharing = shape.heads // shape.key_value_heads
        inner, shared = shape.heads * shape.head_size, shape.key_value_heads * shape.head_size
        self.q_proj = nn.Linear(shape.width, inner, bias=False)
        self.k_proj = nn.Linear(shape.width, shared, bias=False)
        self.v_proj = nn.Linear(shape.width, shared, bias=False)
        self.o_proj = nn.Linear(inner, shape.width, bias=False)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(samples, length, width)."""
        query, key, value = (self._split(part(hidden)) for part in (self.q_proj, self.k_proj, self.v_proj))
        query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
        if self.sharing > 1:
            key, value = (part.repeat_interleave(self.sharing, dim=1) for part in (key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return output

    def _split(self, hidden: Tensor) -> Tensor:
        """(samples, heads, length, head size)."""
        return hidden.unflatten(2, (-1, self.head_size)).transpose(1, 2)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """(samples, length, width)."""
        output: Tensor = self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return output


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the stream."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.mlp = SwiGLU(shape)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(samples, length, width)."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cosine, sine)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Decoder(nn.Module):
    """Grattafiori et al., "The Llama 3 Herd of Models" (2024), with the positions of version 3.1. Parameters are named
    as in the published weights but for their prefix `model.`, which `parts/decoder/weights.py` puts before them."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self._initialize()

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 (samples, length) -> logits of the token behind each (samples, length, vocabulary)."""
        hidden = self.embed_tokens(tokens)
        cosine, sine = rotations(frequencies(self.shape, hidden), tokens.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, cosine, sine)
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits

    def _initialize(self) -> None:
        added = DEVIATION / math.sqrt(2 * len(self.layers))
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                smaller = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=added if smaller else DEVIATION)
