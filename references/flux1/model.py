"""FLUX.1: velocity of a noisy latent by a transformer, whose image and text tokens attend to each other, first with
weights of their own, then with shared ones. Parameters are named as in the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.flux1.config import Model

LAYER_NORM_EPSILON = 1e-6
TIME_FACTOR = 1000.0
TIME_PERIOD = 10000.0
"""Longest wave of the time's embedding, in radians."""


def to_patches(latents: Tensor, patch: int) -> Tensor:
    """(samples, channels, rows, columns) -> (samples, patches row by row, channels * patch * patch): a token's numbers
    by channel, row in the patch, and column in it."""
    cut = latents.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def from_patches(tokens: Tensor, channels: int, rows: int, patch: int) -> Tensor:
    """Inverse of `to_patches` for latents of `rows` rows."""
    cut = tokens.unflatten(2, (channels, patch, patch)).unflatten(1, (rows // patch, -1))
    return cut.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def time_embedding(time: Tensor, width: int) -> Tensor:
    """(samples,) in [0, 1] -> (samples, width): cosines, then sines, of 1,000 times the time at frequencies that fall
    from 1 towards 1 / 10,000."""
    half = width // 2
    steps = torch.arange(half, device=time.device, dtype=time.dtype)
    frequencies = torch.exp(-math.log(TIME_PERIOD) * steps / half)
    angles = TIME_FACTOR * time[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def rotations(shape: Model, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines (text and image tokens, head size / 2) of all positions: a patch is at (0, row, column), a text
    token at (0, 0, 0)."""
    side = shape.latent_size // shape.patch
    kind = torch.promote_types(like.dtype, torch.float32)
    number = torch.arange(side, device=like.device, dtype=kind)
    zero = number.new_zeros(side * side)
    image = (zero, number.repeat_interleave(side), number.repeat(side))
    angles = []
    for axis, position in zip(shape.axes, image, strict=True):
        share = torch.arange(0, axis, 2, device=like.device, dtype=kind) / axis
        angles.append(position[:, None] * shape.theta**-share)
    patches = torch.cat(angles, dim=1)
    every = torch.cat([patches.new_zeros(shape.text_length, patches.shape[1]), patches])
    return every.cos(), every.sin()


def rotated(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """(samples, heads, tokens, head size): neighbouring numbers are the two of a pair that is turned."""
    first, second = heads.to(cosine.dtype).unflatten(3, (-1, 2)).unbind(4)
    turned = [first * cosine - second * sine, first * sine + second * cosine]
    return torch.stack(turned, dim=4).flatten(3).to(heads.dtype)


class Embedder(nn.Module):
    """Two linear layers with SiLU between them, of the time's embedding or of the pooled prompt."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.in_layer = nn.Linear(inputs, width)
        self.out_layer = nn.Linear(width, width)

    def forward(self, given: Tensor) -> Tensor:
        """(samples, width)."""
        output: Tensor = self.out_layer(functional.silu(self.in_layer(given)))
        return output

    def initialize(self, deviation: float) -> None:
        """Normal weights, zero biases."""
        for layer in (self.in_layer, self.out_layer):
            nn.init.normal_(layer.weight, std=deviation)
            nn.init.zeros_(layer.bias)


class QKNorm(nn.Module):
    """RMS norms of each head of queries and of keys, with torch's default epsilon."""

    def __init__(self, head_size: int) -> None:
        super().__init__()
        self.query_norm = nn.RMSNorm(head_size)
        self.key_norm = nn.RMSNorm(head_size)

    def forward(self, qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """(samples, tokens, 3 * width), by queries, keys and values, then by heads -> (samples, heads, tokens, head
        size) of each."""
        query, key, value = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.query_norm(query).to(value.dtype), self.key_norm(key).to(value.dtype), value


class SelfAttention(nn.Module):
    """Projections and norms of attention, for one kind of token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.norm = QKNorm(width // heads)
        self.proj = nn.Linear(width, width)


class Modulation(nn.Module):
    """Shifts, scales and gates of a block, `parts` in all, from the vector of time and prompt."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.lin = nn.Linear(width, parts * width)

    def forward(self, vector: Tensor) -> Sequence[Tensor]:
        """(samples, width) -> `parts` of (samples, 1, width): shift, scale, gate, and so on."""
        return self.lin(functional.silu(vector)).unsqueeze(1).chunk(self.parts, dim=2)


def modulated(hidden: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """(1 + scale) times the layer norm of `hidden`, which has no weights, plus shift."""
    normed = functional.layer_norm(hidden, hidden.shape[-1:], eps=LAYER_NORM_EPSILON)
    return (1 + scale) * normed + shift


def attend(query: Tensor, key: Tensor, value: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Attention of all tokens to all, (samples, heads, tokens, head size) -> (samples, tokens, width)."""
    query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
    return functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


def feed_forward(width: int, inner: int) -> nn.Sequential:
    """Two linear layers with GELU, approximated by a hyperbolic tangent."""
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(approximate="tanh"), nn.Linear(inner, width))


class DoubleBlock(nn.Module):
    """Joint attention and feed-forward parts, with weights of their own for image and for text tokens."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.heads = shape.heads
        width, inner = shape.width, shape.mlp_ratio * shape.width
        self.img_mod = Modulation(width, 6)
        self.img_attn = SelfAttention(width, shape.heads)
        self.img_mlp = feed_forward(width, inner)
        self.txt_mod = Modulation(width, 6)
        self.txt_attn = SelfAttention(width, shape.heads)
        self.txt_mlp = feed_forward(width, inner)

    def forward(
        self, image: Tensor, text: Tensor, vector: Tensor, cosine: Tensor, sine: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Image and text tokens, (samples, tokens, width) each."""
        image_parts, text_parts = self.img_mod(vector), self.txt_mod(vector)
        image_heads = self._heads(self.img_attn, image, image_parts)
        text_heads = self._heads(self.txt_attn, text, text_parts)
        query, key, value = (torch.cat(pair, dim=2) for pair in zip(text_heads, image_heads, strict=True))
        mixed = attend(query, key, value, cosine, sine)
        from_text, from_image = mixed.split([text.shape[1], image.shape[1]], dim=1)
        image = self._added(image, self.img_attn, self.img_mlp, image_parts, from_image)
        text = self._added(text, self.txt_attn, self.txt_mlp, text_parts, from_text)
        return image, text

    def _heads(
        self, attention: SelfAttention, tokens: Tensor, modulation: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        shift, scale = modulation[:2]
        heads: tuple[Tensor, Tensor, Tensor] = attention.norm(
            attention.qkv(modulated(tokens, shift, scale)), self.heads
        )
        return heads

    @staticmethod
    def _added(
        tokens: Tensor, attention: SelfAttention, mlp: nn.Module, modulation: Sequence[Tensor], mixed: Tensor
    ) -> Tensor:
        _, _, gate, shift, scale, last_gate = modulation
        tokens = tokens + gate * attention.proj(mixed)
        return tokens + last_gate * mlp(modulated(tokens, shift, scale))


class SingleBlock(nn.Module):
    """Attention and feed-forward part side by side, of text and image tokens alike."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.heads, self.width = shape.heads, shape.width
        self.inner = shape.mlp_ratio * shape.width
        self.linear1 = nn.Linear(shape.width, 3 * shape.width + self.inner)
        self.linear2 = nn.Linear(shape.width + self.inner, shape.width)
        self.norm = QKNorm(shape.width // shape.heads)
        self.modulation = Modulation(shape.width, 3)

    def forward(self, tokens: Tensor, vector: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(samples, tokens, width)."""
        shift, scale, gate = self.modulation(vector)
        qkv, inner = self.linear1(modulated(tokens, shift, scale)).split([3 * self.width, self.inner], dim=2)
        query, key, value = self.norm(qkv, self.heads)
        mixed = attend(query, key, value, cosine, sine)
        both = torch.cat([mixed, functional.gelu(inner, approximate="tanh")], dim=2)
        output: Tensor = tokens + gate * self.linear2(both)
        return output


class LastLayer(nn.Module):
    """Modulated norm and linear layer to the numbers of a patch."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, outputs)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))

    def forward(self, image: Tensor, vector: Tensor) -> Tensor:
        """(samples, image tokens, numbers of a patch)."""
        shift, scale = self.adaLN_modulation(vector).unsqueeze(1).chunk(2, dim=2)
        output: Tensor = self.linear(modulated(image, shift, scale))
        return output


class Flux(nn.Module):
    """Velocity of a noisy latent, given its time and prompt."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.shape = shape
        numbers = shape.channels * shape.patch**2
        self.img_in = nn.Linear(numbers, shape.width)
        self.time_in = Embedder(shape.time_width, shape.width)
        self.vector_in = Embedder(shape.pooled_width, shape.width)
        self.txt_in = nn.Linear(shape.text_width, shape.width)
        self.double_blocks = nn.ModuleList(DoubleBlock(shape) for _ in range(shape.double_blocks))
        self.single_blocks = nn.ModuleList(SingleBlock(shape) for _ in range(shape.single_blocks))
        self.final_layer = LastLayer(shape.width, numbers)
        self._initialize()

    def forward(self, latents: Tensor, time: Tensor, text: Tensor, pooled: Tensor) -> Tensor:
        """Latents (samples, channels, rows, columns), time (samples,), text (samples, tokens, text width), pooled
        (samples, pooled width) -> velocities, of the latents' shape."""
        kind = torch.promote_types(self.img_in.weight.dtype, latents.dtype)  # sharded ones are gathered cast
        vector = self.time_in(time_embedding(time.to(kind), self.shape.time_width))
        vector = vector + self.vector_in(pooled.to(kind))
        image = self.img_in(to_patches(latents.to(kind), self.shape.patch))
        tokens = self.txt_in(text.to(kind))
        cosine, sine = rotations(self.shape, latents)
        for block in self.double_blocks:
            image, tokens = block(image, tokens, vector, cosine, sine)
        both = torch.cat([tokens, image], dim=1)
        for block in self.single_blocks:
            both = block(both, vector, cosine, sine)
        velocity = self.final_layer(both[:, tokens.shape[1] :], vector)
        return from_patches(velocity, self.shape.channels, latents.shape[2], self.shape.patch)

    def _initialize(self) -> None:
        """Xavier's uniform weights and zero biases; embeddings of time and pooled prompt normal; modulations and last
        layer zero, so that every block begins as the identity and every velocity as 0."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
                if name.startswith("final_layer.") or name.endswith(".lin"):
                    nn.init.zeros_(module.weight)
                else:
                    nn.init.xavier_uniform_(module.weight)
        self.time_in.initialize(self.shape.deviation)
        self.vector_in.initialize(self.shape.deviation)
