"""Activation checkpointing of a network's layers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute(layers: Iterable[nn.Module], *, draws: bool = False) -> None:
    """Let each of `layers` keep its inputs alone, and compute the rest again when the backward pass needs it (Chen et
    al., "Training Deep Nets with Sublinear Memory Cost", 2016). Numbers are the same; layers may draw random ones only
    with `draws`, which keeps the state of torch's generators for each."""
    for layer in layers:
        again = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=draws)
        layer.forward = again
