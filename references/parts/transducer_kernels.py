"""The lattice of the transducer loss on a GPU: one Triton kernel for each direction, a program for each sample.

A program walks the diagonals of its sample, all columns of one at once, and reads the one before from memory. In
float64, as the eager computation.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 256
"""Columns of a program at least, so that batches of other sizes need no other kernel."""


def walk(
    blank: Tensor, label: Tensor, frame_counts: Tensor, label_counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Likelihoods and the probabilities of blanks and labels of `transducer_loss.Lattice`, from (samples, T, U + 1)
    log-probabilities of blank and of the next label."""
    samples, frames, columns = blank.shape
    forward, backward = (torch.empty_like(blank, dtype=torch.float64) for _ in range(2))
    likelihood = forward.new_empty(samples)
    taken = forward.new_zeros(2, samples, frames, columns)
    given = (blank.contiguous(), label.contiguous(), frame_counts, label_counts)
    width = max(COLUMNS, triton.next_power_of_2(columns))
    _forward[(samples,)](*given, forward, likelihood, frames, columns, width)
    _backward[(samples,)](*given, forward, likelihood, backward, *taken, frames, columns, width)
    return likelihood, taken[0], taken[1]


@triton.jit
def _log_add(one: tl.tensor, other: tl.tensor) -> Any:
    """log(exp(one) + exp(other)); NaN where one of them is."""
    never = float("-inf")
    larger = tl.where(one > other, one, other)
    total = larger + tl.log(1.0 + tl.exp(-tl.abs(one - other)))
    return tl.where((one == never) & (other == never), never, total)


@triton.jit(do_not_specialize=["frames", "columns"])
def _forward(
    blank: tl.tensor,
    label: tl.tensor,
    frame_counts: tl.tensor,
    label_counts: tl.tensor,
    forward: tl.tensor,
    likelihood: tl.tensor,
    frames: tl.tensor,
    columns: tl.tensor,
    WIDTH: tl.constexpr,
) -> None:
    """Log-probability to come to each node; that to leave the last one by blank is the labels'."""
    never = float("-inf")
    sample = tl.program_id(0).to(tl.int64)
    first = sample * frames * columns
    last_frame = tl.load(frame_counts + sample) - 1
    last_column = tl.load(label_counts + sample)
    column = tl.arange(0, WIDTH)
    for diagonal in range(frames + columns - 1):
        frame = diagonal - column
        node = first + frame * columns + column
        there = (frame >= 0) & (frame <= last_frame) & (column <= last_column)
        before = node - columns
        can = there & (frame > 0)
        by_blank = tl.load(forward + before, mask=can, other=never)
        by_blank += tl.load(blank + before, mask=can, other=never).to(tl.float64)
        can = there & (column > 0)
        by_label = tl.load(forward + node - 1, mask=can, other=never)
        by_label += tl.load(label + node - 1, mask=can, other=never).to(tl.float64)
        reached = tl.where(diagonal == 0, 0.0, _log_add(by_blank, by_label))
        tl.store(forward + node, reached, mask=there)
        tl.debug_barrier()
    end = first + last_frame * columns + last_column
    tl.store(likelihood + sample, tl.load(forward + end) + tl.load(blank + end).to(tl.float64))


@triton.jit(do_not_specialize=["frames", "columns"])
def _backward(
    blank: tl.tensor,
    label: tl.tensor,
    frame_counts: tl.tensor,
    label_counts: tl.tensor,
    forward: tl.tensor,
    likelihood: tl.tensor,
    backward: tl.tensor,
    blank_taken: tl.tensor,
    label_taken: tl.tensor,
    frames: tl.tensor,
    columns: tl.tensor,
    WIDTH: tl.constexpr,
) -> None:
    """Log-probability to come from each node to the end, and the probability that a path takes each move, which is the
    gradient."""
    never = float("-inf")
    sample = tl.program_id(0).to(tl.int64)
    first = sample * frames * columns
    last_frame = tl.load(frame_counts + sample) - 1
    last_column = tl.load(label_counts + sample)
    total = tl.load(likelihood + sample)
    column = tl.arange(0, WIDTH)
    for step in range(frames + columns - 1):
        frame = last_frame + last_column - step - column
        node = first + frame * columns + column
        there = (frame >= 0) & (frame <= last_frame) & (column <= last_column)
        by_blank = tl.load(backward + node + columns, mask=there & (frame < last_frame), other=never)
        by_blank = tl.where((frame == last_frame) & (column == last_column), 0.0, by_blank)
        by_blank += tl.load(blank + node, mask=there, other=never).to(tl.float64)
        can = there & (column < last_column)
        by_label = tl.load(backward + node + 1, mask=can, other=never)
        by_label += tl.load(label + node, mask=can, other=never).to(tl.float64)
        tl.store(backward + node, _log_add(by_blank, by_label), mask=there)
        reached = tl.load(forward + node, mask=there, other=never) - total
        tl.store(blank_taken + node, tl.exp(reached + by_blank), mask=there)
        tl.store(label_taken + node, tl.exp(reached + by_label), mask=there)
        tl.debug_barrier()
