"""torch's DistributedDataParallel without torch's compiler.

On construction it asks the compiler's configuration how gradients are to be reduced in a compiled model, and in its
forward pass it enters a function that is marked as not to be compiled. Either imports the compiler: one to two seconds
of processor time at every rank's start, for nothing where nothing is compiled. Whoever imports the compiler before a
model is wrapped, to configure it, gets torch's own answers.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


class LightDDP(DistributedDataParallel):
    """torch's DistributedDataParallel without the no-compile mark on a function of its forward pass."""

    _inside_ddp_forward = contextmanager(inspect.unwrap(DistributedDataParallel._inside_ddp_forward))

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        with _compiler_unconfigured():
            super().__init__(module, **options)


@contextmanager
def _compiler_unconfigured() -> Iterator[None]:
    """The compiler's default configuration for DistributedDataParallel."""
    if "torch._dynamo" in sys.modules:
        yield
        return
    utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")
    vars(torch)["_dynamo"] = SimpleNamespace(utils=utils)
    try:
        yield
    finally:
        del vars(torch)["_dynamo"]  # torch finds the real one on demand
