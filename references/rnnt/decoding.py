"""Greedy decoding of a batch, all utterances in parallel on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from train_bench.references.rnnt.model import RNNT, State


def greedy(
    model: RNNT, features: Tensor, frame_counts: Tensor, *, symbols_per_frame: int, most_symbols: int
) -> list[list[int]]:
    """The labels of each utterance, the most probable output at a time.

    `features` is (T, samples, features), `frame_counts` (samples,) counts encoder frames. Blank leads to the
    next frame, and so do `symbols_per_frame` labels at one frame. An utterance with more than `most_symbols`
    labels is given up at its next frame. (Reference of the benchmark, greedy decoder.)

    Every round of the loop takes one decision for each utterance, so there are about as many rounds as the
    slowest has frames and labels.
    """
    encoded = model.encode(features)
    samples, device = encoded.shape[0], encoded.device
    blank = model.joint_net.out_features - 1
    everyone = torch.arange(samples, device=device)
    frame, here, total = (torch.zeros(samples, dtype=torch.int64, device=device) for _ in range(3))
    predicted, state = model.predict(None, None, samples)
    decisions = []
    active = frame < frame_counts
    while bool(active.any()):
        seen = encoded[everyone, frame.clamp(max=encoded.shape[1] - 1)]
        choice = model.join(seen, predicted).argmax(dim=-1)
        emits = active & (choice != blank)
        decisions.append(torch.where(emits, choice, blank))
        following, after = model.predict(choice.masked_fill(~emits, 0), state, samples)
        predicted = torch.where(emits.unsqueeze(1), following, predicted)
        state = _chosen(emits, after, state)
        here, total = here + emits, total + emits
        moves = active & (~emits | (here >= symbols_per_frame))
        frame, here = frame + moves, here.masked_fill(moves, 0)
        active = (frame < frame_counts) & ~(moves & (total > most_symbols)) & active
    taken = torch.stack(decisions, dim=1).tolist() if decisions else [[] for _ in range(samples)]
    return [[label for label in row if label != blank] for row in taken]


def _chosen(emits: Tensor, after: State, before: State) -> State:
    """The new state of those who emitted, the old one of the others."""
    mask = emits.view(1, -1, 1)
    return [
        (torch.where(mask, new[0], old[0]), torch.where(mask, new[1], old[1]))
        for new, old in zip(after, before, strict=True)
    ]
