"""Rotary positions (Su et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor


def plain_frequencies(base: float, head_size: int, like: Tensor) -> Tensor:
    """(head size / 2,): radians per position, `base ** (-2 i / head size)`; on the device of `like` and at least in
    float32."""
    wide = torch.promote_types(like.dtype, torch.float32)
    half = torch.arange(0, head_size, 2, device=like.device, dtype=wide) / head_size
    frequencies: Tensor = 1.0 / base**half
    return frequencies


def rotations(frequencies: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine (length, head size) of every position's angles; the second half repeats the first."""
    positions = torch.arange(length, device=frequencies.device, dtype=frequencies.dtype)
    angles = positions[:, None] * frequencies
    angles = torch.cat([angles, angles], dim=1)
    return angles.cos(), angles.sin()


def rotated(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """(samples, heads, length, head size), number i of a head turned together with number i + head size / 2."""
    one, other = heads.chunk(2, dim=3)
    turned: Tensor = heads * cosine + torch.cat([-other, one], dim=3) * sine
    return turned.to(heads.dtype)
