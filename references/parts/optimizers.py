"""Optimizers that do not load torch's compiler.

torch marks some methods of its optimizers as not to be compiled, and the mark imports the compiler on the first
call: two thirds of a second to two seconds of every rank's start, for nothing where only models are compiled. The
methods themselves are torch's own, found below the mark by `inspect.unwrap`; in a torch that has no mark they are
what they always were.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch


class Optimizer(torch.optim.Optimizer):
    """What an optimizer derives from. Its steps are not to be compiled."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class SGD(Optimizer, torch.optim.SGD):
    """torch's SGD, whose step leaves no gradient of its own (torch's `differentiable`, which is not offered)."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Torch's own step."""
        return inspect.unwrap(torch.optim.SGD.step)(self, closure)


class Adam(Optimizer, torch.optim.Adam):
    """torch's Adam, likewise."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Torch's own step."""
        return inspect.unwrap(torch.optim.Adam.step)(self, closure)


class AdamW(Optimizer, torch.optim.AdamW):
    """torch's AdamW, likewise."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Torch's own step."""
        return inspect.unwrap(torch.optim.AdamW.step)(self, closure)


class Adagrad(Optimizer, torch.optim.Adagrad):
    """torch's Adagrad, likewise. It makes sparse tensors of its own, which need no check."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Torch's own step."""
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            return inspect.unwrap(torch.optim.Adagrad.step)(self, closure)
