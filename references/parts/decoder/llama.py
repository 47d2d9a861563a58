"""Llama base model: a decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU, without biases; the
output layer is not the embedding. A benchmark adds its projections of attention and, where they are not plain, its
rotations."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.parts.decoder.config import Model
from train_bench.references.parts.decoder.loss import next_token_nats
from train_bench.references.parts.decoder.rotary import plain_frequencies, rotated, rotations

DEVIATION = 0.02
"""Standard deviation of the normal that weights start from; layers whose output is added to the stream are smaller by
the square root of how many there are."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, cosine: Tensor, sine: Tensor, *, head_size: int
) -> Tensor:
    """Causal self-attention (samples, length, heads * head size) of projections of that shape, in which several heads
    of queries share one of keys and values."""
    query, key, value = (part.unflatten(2, (-1, head_size)).transpose(1, 2) for part in (query, key, value))
    mixed = causal_attention(rotated(query, cosine, sine), rotated(key, cosine, sine), value)
    return mixed.transpose(1, 2).flatten(2)


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """(samples, heads, length, head size); several heads of queries may share one of keys and values. GPU kernels of
    float32 share none, so there keys and values are repeated."""
    sharing = query.shape[1] // key.shape[1]
    if sharing > 1 and query.is_cuda and query.dtype not in (torch.float16, torch.bfloat16):
        key, value = (part.repeat_interleave(sharing, dim=1) for part in (key, value))
        sharing = 1
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=sharing > 1)


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
    """Attention and feed-forward, each pre-normalised and added to the residual stream."""

    def __init__(self, shape: Model, attention: Callable[[Model], nn.Module]) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.self_attn = attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.mlp = SwiGLU(shape)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(samples, length, width)."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cosine, sine)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Llama(nn.Module):
    """Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models" (2023). `attention` makes a layer's; its
    forward takes (samples, length, width), cosine and sine. Parameters are named as in the published weights but for
    their prefix `model.`, which `weights.py` puts before them."""

    def __init__(self, shape: Model, attention: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.rows, shape.width)
        self.layers = nn.ModuleList(Layer(shape, attention) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.lm_head = nn.Linear(shape.width, shape.rows, bias=False)
        self._initialize()

    def forward(self, tokens: Tensor, targets: Tensor | None = None, mean: bool = True) -> Tensor:
        """int64 (samples, length) -> logits of each next token (samples, length, rows); with the next tokens as
        `targets`, their nats (`next_token_nats`)."""
        hidden = self.embed_tokens(tokens)
        cosine, sine = rotations(self._frequencies(hidden), tokens.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, cosine, sine)
        hidden = self.norm(hidden)
        if targets is not None:
            return next_token_nats(self.lm_head, hidden, targets, mean=mean)
        logits: Tensor = self.lm_head(hidden)
        return logits

    def _frequencies(self, like: Tensor) -> Tensor:
        """(head size / 2,): radians per position."""
        return plain_frequencies(self.shape.rope_base, self.shape.head_size, like)

    def _initialize(self) -> None:
        added = DEVIATION / math.sqrt(2 * len(self.layers))
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                smaller = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=added if smaller else DEVIATION)
