"""torch's DistributedDataParallel without torch's compiler.

On construction it asks the compiler's configuration how gradients are to be reduced in a compiled model, and in its
forward pass it enters a function that is marked as not to be compiled. Either imports the compiler: one to two seconds
of processor time at every rank's start, for nothing where nothing is compiled. Whoever imports the compiler before a
model is wrapped, to configure it, gets torch's own answers.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

ASKED = "torch._dynamo.utils.get_optimize_ddp_mode"
"""What the constructor asks the compiler."""

KNOWN = {ASKED, "torch._dynamo.trace_rules"}
"""Parts of the compiler that the constructor names: the second only where it is asked for a reducer in Python."""

NAME = re.compile(r"torch\._dynamo(?:\.(?:utils\.)?\w+)?")


def asks_as_known(constructor: Callable[..., Any]) -> bool:
    """True if a constructor asks the compiler what that of torch 2.15 asks, and
    nothing else. Any other torch is left as it is."""
    try:
        names = set(NAME.findall(inspect.getsource(constructor)))
    except OSError:
        return False
    return ASKED in names and names <= KNOWN


def without_mark(ddp: type[DistributedDataParallel]) -> Any:
    """The context of a forward pass without its no-compile mark; as it is where torch has another one, or none."""
    marked = getattr(ddp, "_inside_ddp_forward", None)
    function = inspect.unwrap(marked) if marked is not None else None
    return contextmanager(function) if inspect.isgeneratorfunction(function) else marked


class LightDDP(DistributedDataParallel):
    """torch's DistributedDataParallel without the no-compile mark on a function of its forward pass."""

    _inside_ddp_forward = without_mark(DistributedDataParallel)

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        with _compiler_unconfigured():
            super().__init__(module, **options)


@contextmanager
def _compiler_unconfigured() -> Iterator[None]:
    """The compiler's default configuration for DistributedDataParallel."""
    if "torch._dynamo" in sys.modules or not asks_as_known(DistributedDataParallel.__init__):
        yield
        return
    utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")
    vars(torch)["_dynamo"] = SimpleNamespace(utils=utils)
    try:
        yield
    finally:
        del vars(torch)["_dynamo"]  # torch finds the real one on demand
