"""Updates of LAMB and LARS on a GPU, of all tensors of a group at once, as Triton kernels.

Every program takes a block of one tensor. With layer adaptation there are three kernels: one that sums the squares of
each block (and moves LAMB's moments), one that makes the ratio of each tensor of these sums, and one that updates the
weights; without it, one or two. Nothing of the size of the weights is kept between them: LAMB's direction is computed
again, which costs less than writing and reading it. The order of sums is fixed, so that equal runs stay equal.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Elements of a program."""

SUMS = 1024
"""Blocks of a tensor whose sums are added at once."""


class _Blocks(NamedTuple):
    """Blocks of tensors.

    sizes   (tensors,) elements
    owners  (blocks,) the tensor of each block
    firsts  (tensors + 1,) the first block of each tensor, and the number of blocks
    """

    sizes: Tensor
    owners: Tensor
    firsts: Tensor


def lamb(
    rows: Sequence[Sequence[Tensor]],
    *,
    lr: float,
    betas: tuple[float, float],
    corrections: tuple[float, float],
    epsilon: float,
    weight_decay: float,
    layer_adaptation: bool,
) -> None:
    """LAMB's update of `rows`: a weight, its gradient, its two moments. `corrections` are the divisors of the first
    moment and of the root of the second for their bias. Numbers are floats, of which a kernel is compiled once."""
    blocks, addresses, ratios, squares = _prepared(rows)
    grid = (len(blocks.owners),)
    direction = (*corrections, float(epsilon), float(weight_decay))
    moved = (1.0 - betas[0], float(betas[1]), 1.0 - betas[1])
    _lamb_moments[grid](addresses, *blocks, squares, *moved, *direction, layer_adaptation, BLOCK)
    if layer_adaptation:
        _lamb_ratios[(len(rows),)](squares, blocks.firsts, ratios, SUMS)
    _lamb_update[grid](addresses, *blocks, ratios, -float(lr), *direction, layer_adaptation, BLOCK)


def lars(
    rows: Sequence[Sequence[Tensor]],
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    eta: float,
    epsilon: float,
    layer_adaptation: bool,
) -> None:
    """LARS's update of `rows`: a weight, its gradient, its velocity each."""
    blocks, addresses, ratios, squares = _prepared(rows)
    grid = (len(blocks.owners),)
    if layer_adaptation:
        _squares[grid](addresses, *blocks, squares, BLOCK)
        scalars = (float(eta), float(weight_decay), float(epsilon))
        _lars_ratios[(len(rows),)](squares, blocks.firsts, ratios, *scalars, SUMS)
    scalars = (-float(lr), float(momentum), float(weight_decay))
    _lars_update[grid](addresses, *blocks, ratios, *scalars, layer_adaptation, BLOCK)


def _prepared(rows: Sequence[Sequence[Tensor]]) -> tuple[_Blocks, Tensor, Tensor, Tensor]:
    """Blocks, the address of every tensor by row, and memory for the ratio of each row and the sums of each block. The
    addresses of gradients are other ones in each step; they are copied behind what is queued, without a wait."""
    device = rows[0][0].device
    blocks = _blocks(tuple(row[0].numel() for row in rows), device)
    listed = [[tensor.data_ptr() for tensor in row] for row in rows]
    table = torch.tensor(listed, dtype=torch.int64, pin_memory=device.type == "cuda")
    ratios = torch.empty(len(rows), device=device)
    return blocks, table.to(device, non_blocking=True), ratios, ratios.new_empty(len(blocks.owners), 2)


@functools.lru_cache(maxsize=16)
def _blocks(sizes: tuple[int, ...], device: torch.device) -> _Blocks:
    lengths = torch.tensor(sizes)
    counts = (lengths + BLOCK - 1) // BLOCK
    owners = torch.arange(len(sizes)).repeat_interleave(counts)
    firsts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return _Blocks(lengths.to(device), owners.to(device), firsts.to(device))


@triton.jit
def _located(sizes: tl.tensor, owners: tl.tensor, firsts: tl.tensor, BLOCK: tl.constexpr) -> Any:
    """The tensor of this program's block, the places of the block's elements in it, and which of them are there."""
    block = tl.program_id(0).to(tl.int64)
    owner = tl.load(owners + block)
    places = (block - tl.load(firsts + owner)) * BLOCK + tl.arange(0, BLOCK)
    return owner, places, places < tl.load(sizes + owner)


@triton.jit
def _of(addresses: tl.tensor, owner: tl.tensor, KIND: tl.constexpr, KINDS: tl.constexpr) -> Any:
    """Pointer to a tensor of a row."""
    return tl.load(addresses + owner * KINDS + KIND).to(tl.pointer_type(tl.float32))


@triton.jit
def _direction(
    first: tl.tensor,
    second: tl.tensor,
    weight: tl.tensor,
    first_correction: tl.tensor,
    second_correction: tl.tensor,
    epsilon: tl.tensor,
    weight_decay: tl.tensor,
) -> Any:
    """LAMB's u."""
    divisor = tl.div_rn(tl.sqrt_rn(second), second_correction) + epsilon
    return tl.div_rn(tl.div_rn(first, first_correction), divisor) + weight_decay * weight


@triton.jit
def _lamb_moments(
    addresses: tl.tensor,
    sizes: tl.tensor,
    owners: tl.tensor,
    firsts: tl.tensor,
    squares: tl.tensor,
    new_first: tl.tensor,
    beta_2: tl.tensor,
    new_second: tl.tensor,
    first_correction: tl.tensor,
    second_correction: tl.tensor,
    epsilon: tl.tensor,
    weight_decay: tl.tensor,
    ADAPTED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Both moments, and the sums of the squares of weights and directions of each block."""
    owner, places, there = _located(sizes, owners, firsts, BLOCK)
    gradient = tl.load(_of(addresses, owner, 1, 4) + places, mask=there, other=0.0)
    at_first = _of(addresses, owner, 2, 4) + places
    at_second = _of(addresses, owner, 3, 4) + places
    first = tl.load(at_first, mask=there, other=0.0)
    first += new_first * (gradient - first)
    second = tl.load(at_second, mask=there, other=0.0) * beta_2 + new_second * gradient * gradient
    tl.store(at_first, first, mask=there)
    tl.store(at_second, second, mask=there)
    if ADAPTED:
        weight = tl.load(_of(addresses, owner, 0, 4) + places, mask=there, other=0.0)
        taken = _direction(first, second, weight, first_correction, second_correction, epsilon, weight_decay)
        taken = tl.where(there, taken, 0.0)
        at = squares + tl.program_id(0).to(tl.int64) * 2
        tl.store(at, tl.sum(weight * weight, axis=0))
        tl.store(at + 1, tl.sum(taken * taken, axis=0))


@triton.jit
def _lamb_update(
    addresses: tl.tensor,
    sizes: tl.tensor,
    owners: tl.tensor,
    firsts: tl.tensor,
    ratios: tl.tensor,
    negative_rate: tl.tensor,
    first_correction: tl.tensor,
    second_correction: tl.tensor,
    epsilon: tl.tensor,
    weight_decay: tl.tensor,
    ADAPTED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Weights."""
    owner, places, there = _located(sizes, owners, firsts, BLOCK)
    at_weight = _of(addresses, owner, 0, 4) + places
    weight = tl.load(at_weight, mask=there, other=0.0)
    first = tl.load(_of(addresses, owner, 2, 4) + places, mask=there, other=0.0)
    second = tl.load(_of(addresses, owner, 3, 4) + places, mask=there, other=0.0)
    taken = _direction(first, second, weight, first_correction, second_correction, epsilon, weight_decay)
    if ADAPTED:
        taken *= tl.load(ratios + owner)
    tl.store(at_weight, weight + negative_rate * taken, mask=there)


@triton.jit
def _squares(
    addresses: tl.tensor,
    sizes: tl.tensor,
    owners: tl.tensor,
    firsts: tl.tensor,
    squares: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """The sums of the squares of weights and gradients of each block."""
    owner, places, there = _located(sizes, owners, firsts, BLOCK)
    weight = tl.load(_of(addresses, owner, 0, 3) + places, mask=there, other=0.0)
    gradient = tl.load(_of(addresses, owner, 1, 3) + places, mask=there, other=0.0)
    at = squares + tl.program_id(0).to(tl.int64) * 2
    tl.store(at, tl.sum(weight * weight, axis=0))
    tl.store(at + 1, tl.sum(gradient * gradient, axis=0))


@triton.jit
def _lars_update(
    addresses: tl.tensor,
    sizes: tl.tensor,
    owners: tl.tensor,
    firsts: tl.tensor,
    ratios: tl.tensor,
    negative_rate: tl.tensor,
    momentum: tl.tensor,
    weight_decay: tl.tensor,
    ADAPTED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Velocities and weights."""
    owner, places, there = _located(sizes, owners, firsts, BLOCK)
    at_weight = _of(addresses, owner, 0, 3) + places
    at_velocity = _of(addresses, owner, 2, 3) + places
    weight = tl.load(at_weight, mask=there, other=0.0)
    taken = tl.load(_of(addresses, owner, 1, 3) + places, mask=there, other=0.0)
    if ADAPTED:
        taken = (taken + weight_decay * weight) * tl.load(ratios + owner)
    velocity = tl.load(at_velocity, mask=there, other=0.0) * momentum + negative_rate * taken
    tl.store(at_velocity, velocity, mask=there)
    tl.store(at_weight, weight + velocity, mask=there)


@triton.jit
def _norms(squares: tl.tensor, firsts: tl.tensor, SUMS: tl.constexpr) -> Any:
    """The two norms of this program's tensor."""
    tensor = tl.program_id(0)
    end = tl.load(firsts + tensor + 1)
    one = tl.zeros((SUMS,), dtype=tl.float32)
    other = tl.zeros((SUMS,), dtype=tl.float32)
    for start in range(tl.load(firsts + tensor), end, SUMS):
        block = start + tl.arange(0, SUMS)
        one += tl.load(squares + block * 2, mask=block < end, other=0.0)
        other += tl.load(squares + block * 2 + 1, mask=block < end, other=0.0)
    return tl.sqrt_rn(tl.sum(one, axis=0)), tl.sqrt_rn(tl.sum(other, axis=0))


@triton.jit
def _lamb_ratios(squares: tl.tensor, firsts: tl.tensor, ratios: tl.tensor, SUMS: tl.constexpr) -> None:
    """|w| / |u| of each tensor; 1 where one of them is 0."""
    weight, taken = _norms(squares, firsts, SUMS)
    usable = (weight > 0.0) & (taken > 0.0)
    ratio = tl.where(usable, tl.div_rn(weight, tl.where(usable, taken, 1.0)), 1.0)
    tl.store(ratios + tl.program_id(0), ratio)


@triton.jit
def _lars_ratios(
    squares: tl.tensor,
    firsts: tl.tensor,
    ratios: tl.tensor,
    eta: tl.tensor,
    weight_decay: tl.tensor,
    epsilon: tl.tensor,
    SUMS: tl.constexpr,
) -> None:
    """eta |w| / (|g| + weight_decay |w| + epsilon) of each tensor; 1 where one of them is 0."""
    weight, gradient = _norms(squares, firsts, SUMS)
    usable = (weight > 0.0) & (gradient > 0.0)
    divisor = gradient + weight_decay * weight + epsilon
    ratio = tl.where(usable, tl.div_rn(eta * weight, tl.where(usable, divisor, 1.0)), 1.0)
    tl.store(ratios + tl.program_id(0), ratio)
