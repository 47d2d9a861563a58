"""The transducer loss, computed diagonal by diagonal and with its own gradient.

T is the largest number of frames of the batch, U the largest number of labels, V the number of outputs. Node
(t, u) of the lattice has seen t frames and emitted u labels; blank leads to (t + 1, u), label u to (t, u + 1).
All nodes with t + u = d form diagonal d, which follows from diagonal d - 1 alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from train_bench.references.parts.compilation import triton_builds

NEVER = float("-inf")


class Lattice(NamedTuple):
    """Result of `lattice`.

    likelihood  float64 (samples,): log-probability of the labels
    blank       float64 (samples, T, U + 1): probability that the labels' path takes blank at a node
    label       float64 (samples, T, U + 1): likewise its label; 0 in the last column
    """

    likelihood: Tensor
    blank: Tensor
    label: Tensor


def transducer_loss(
    logits: Tensor, labels: Tensor, frame_counts: Tensor, label_counts: Tensor, *, blank: int
) -> Tensor:
    """(samples,) negative log-likelihoods of `labels`, differentiable in `logits` (Graves, "Sequence
    Transduction with Recurrent Neural Networks" (2012), equations 16 to 20).

    logits        (samples, T, U + 1, V); the softmax over V is part of the loss
    labels        int64 (samples, U); what lies beyond `label_counts` is not read
    frame_counts  int64 (samples,), 1 to T
    label_counts  int64 (samples,), 0 to U
    """
    return _TransducerLoss.apply(logits, labels, frame_counts, label_counts, blank)


class _TransducerLoss(torch.autograd.Function):
    """With the softmax inside, the gradient needs no second tensor of the size of the logits but itself."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, frame_counts: Tensor, label_counts: Tensor, blank: int
    ) -> Tensor:
        normalizers = logits.logsumexp(dim=-1)
        indices = _label_indices(labels, logits)
        by_kernels = logits.is_cuda and triton_builds()
        gradients = (_lattice_of_kernels if by_kernels else lattice)(
            logits[..., blank] - normalizers,
            logits.gather(-1, indices).squeeze(-1) - normalizers,
            frame_counts,
            label_counts,
        )
        ctx.blank = blank
        taken = (_without_traces(move, logits.dtype) for move in (gradients.blank, gradients.label))
        ctx.save_for_backward(logits, normalizers, indices, *taken)
        return -gradients.likelihood.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """softmax (P(blank) + P(label)), less P of the one that was taken at its output."""
        logits, normalizers, indices, blank, label = ctx.saved_tensors
        outer = gradients[0].view(-1, 1, 1)
        gradient = (logits - normalizers.unsqueeze(-1)).exp_().mul_(((blank + label) * outer).unsqueeze(-1))
        gradient[..., ctx.blank] -= blank * outer
        gradient.scatter_add_(-1, indices, -(label * outer).unsqueeze(-1))
        return gradient, None, None, None, None


def _without_traces(probabilities: Tensor, dtype: torch.dtype) -> Tensor:
    """In `dtype`, with 0 for what is less than the square of its precision. The values of a diagonal sum to 1, so this
    changes no digit of a gradient; but with denormal numbers, as lie far from the probable paths, CPUs multiply
    matrices many times more slowly."""
    least = torch.finfo(dtype).eps ** 2
    return probabilities.masked_fill(probabilities < least, 0.0).to(dtype)


def _label_indices(labels: Tensor, logits: Tensor) -> Tensor:
    """int64 (samples, T, U + 1, 1): the output that is the next label; any in the last column."""
    padded = functional.pad(labels, (0, 1))
    return padded[:, None, :, None].expand(-1, logits.shape[1], -1, 1)


def _lattice_of_kernels(blank: Tensor, label: Tensor, frame_counts: Tensor, label_counts: Tensor) -> Lattice:
    """As `lattice`, in a kernel for each direction, which a GPU starts two thousand times as often without them."""
    from train_bench.references.parts.transducer_kernels import walk

    return Lattice(*walk(blank, label, frame_counts, label_counts))


def lattice(blank: Tensor, label: Tensor, frame_counts: Tensor, label_counts: Tensor) -> Lattice:
    """The labels' log-likelihood and how probable each move is, from (samples, T, U + 1) log-probabilities
    of blank and of the next label. Its gradient by these are `blank` and `label` of the result.

    Runs over the T + U diagonals, forwards and backwards at once: the backward variables are the forward
    variables of the lattice seen from its end. In float64, because errors add up over a path.
    """
    samples, frames, columns = blank.shape
    diagonals = frames + columns - 1
    place = torch.arange(columns, device=blank.device)
    beyond = place > label_counts.view(-1, 1)
    last = place == label_counts.view(-1, 1)
    late = torch.arange(frames, device=blank.device).view(1, -1, 1) >= frame_counts.view(-1, 1, 1)
    closed = late | beyond.unsqueeze(1)
    by_blank = _skewed(blank.double().masked_fill(closed, NEVER))
    by_label = _skewed(label.double().masked_fill(closed | last.unsqueeze(1), NEVER))
    # Blank is the only way out of the last column. After the last frame it costs nothing more, so that
    # all samples end on the last diagonal, whatever their sizes.
    number = torch.arange(diagonals, device=blank.device).view(-1, 1, 1)
    ended = last & (number >= (frame_counts + label_counts).view(1, -1, 1))
    by_blank.masked_fill_(ended, 0.0)

    start = (place == 0).expand(samples, -1)
    states = _walk(
        torch.cat([by_blank, by_blank.flip(0, 2)], dim=1),
        torch.cat([functional.pad(by_label, (1, -1), value=NEVER), by_label.flip(0, 2)], dim=1),
        torch.cat([start, last.flip(1)]),
    )
    forward, backward = states[:, :samples], states[:, samples:].flip(0, 2)
    likelihood = backward[0, :, 0]
    after_label = functional.pad(backward[1:, :, 1:], (0, 1), value=NEVER)
    total = likelihood.view(-1, 1)
    blank_taken = (forward[:-1] + by_blank + backward[1:] - total).exp()
    label_taken = (forward[:-1] + by_label + after_label - total).exp()
    return Lattice(
        likelihood=likelihood,
        blank=_straight(blank_taken, frames).masked_fill(closed, 0.0),
        label=_straight(label_taken, frames).masked_fill(closed, 0.0),
    )


def _walk(stay: Tensor, advance: Tensor, start: Tensor) -> Tensor:
    """(diagonals + 1, n, columns) log-probabilities to have come to each node: from the same column by `stay`
    and from the column before by `advance`, both (diagonals, n, columns), beginning where `start` is true.
    """
    diagonals, count, columns = stay.shape
    states = stay.new_full((diagonals + 1, count, columns + 1), NEVER)
    states[0, :, 1:].masked_fill_(start, 0.0)
    here, before = states[:, :, 1:].unbind(0), states[:, :, :-1].unbind(0)
    advanced = torch.empty_like(stay[0])
    for number, (by_staying, by_advancing) in enumerate(zip(stay.unbind(0), advance.unbind(0), strict=True)):
        following = here[number + 1]
        torch.add(before[number], by_advancing, out=advanced)
        torch.add(here[number], by_staying, out=following)
        torch.logaddexp(following, advanced, out=following)
    return states[:, :, 1:]


def _skewed(values: Tensor) -> Tensor:
    """(samples, T, U + 1) -> (T + U, samples, U + 1): node (t, u) moves to diagonal t + u; -inf elsewhere."""
    samples, frames, columns = values.shape
    rows = functional.pad(values.transpose(1, 2), (0, columns), value=NEVER).flatten(1)
    rows = rows[:, : columns * (frames + columns - 1)]
    return rows.view(samples, columns, -1).permute(2, 0, 1).contiguous()


def _straight(values: Tensor, frames: int) -> Tensor:
    """The inverse of `_skewed`."""
    diagonals, samples, columns = values.shape
    rows = functional.pad(values.permute(1, 2, 0).flatten(1), (0, columns))
    return rows.view(samples, columns, diagonals + 1)[:, :, :frames].transpose(1, 2)
