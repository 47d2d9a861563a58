"""Sharding of a replicated model: parameters and buffers replaced in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


@contextmanager
def dividing(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Context in which parameters and buffers are rank 0's on all ranks, and may be replaced by sharded ones of the
    same name; on exit the optimizer's groups hold the replacements."""
    before = list(model.parameters())
    for weight in before:
        weight.data = weight.data.contiguous()  # layouts are lost in pieces
        dist.broadcast(weight.data, src=0)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
    yield
    divided = dict(zip(map(id, before), model.parameters(), strict=True))
    for group in optimizer.param_groups:
        group["params"] = [divided[id(weight)] for weight in group["params"]]
