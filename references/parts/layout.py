"""Memory layout of images and of the weights of their convolutions."""

from __future__ import annotations

import torch

from train_bench.parallel import Parallel


def layout_of(channels_last: bool | None, parallel: Parallel, *, dims: int = 2) -> torch.memory_format:
    """Layout of images of two or three dimensions: `channels_last` as configured, or by None the faster one for the
    device and numerics of `parallel`."""
    if not (parallel.channels_last if channels_last is None else channels_last):
        return torch.contiguous_format
    return torch.channels_last if dims == 2 else torch.channels_last_3d
