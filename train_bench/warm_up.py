"""Warm-up before the clock, without side effects: kernels are compiled and memory is reserved, numbers are as before
(rules: initialisation may not change the model's state).

    from train_bench.warm_up import without_trace

    with without_trace(model, optimizer, scaler, scheduler):
        train_step(batch_that_was_not_read)
"""

from __future__ import annotations

import copy
import random
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch

from train_bench.core.sharded_tensors import own_part
from train_bench.errors import LaunchError


class Stateful(Protocol):
    """Further state that a step changes and that can be restored: a gradient scaler, a schedule, the launcher's
    `Parallel`."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that has to be set back."""

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Be as when `state` was given."""


@contextmanager
def without_trace(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, *others: Stateful
) -> Iterator[None]:
    """Context that restores all state on exit: parameters, buffers, gradients, optimizer state, learning rates, the
    state of `others`, module modes and the generators of torch, CUDA, numpy and python are as they were. Tensors are
    written in place, so wrappers and compiled code stay valid; meanwhile their values are in the memory of the host, so
    that a warm-up needs no more of a GPU's than a step.

    The restoration is verified, because an optimizer or a launcher may keep more state than it returns: LaunchError
    names what has changed.
    """
    tensors = {name: tensor.to("cpu", copy=True) for name, tensor in _tensors(model).items()}
    modes = [(module, module.training) for module in model.modules()]
    optimizer_state = copy.deepcopy(optimizer.state_dict())
    kept_apart = copy.deepcopy(_kept_apart(optimizer))
    states = [copy.deepcopy(other.state_dict()) for other in others]
    generators = _generators()
    try:
        yield
    finally:
        with torch.no_grad():
            for name, tensor in _tensors(model).items():
                if name in tensors:
                    tensor.copy_(tensors[name])
        for module, training in modes:
            module.training = training
        optimizer.zero_grad(set_to_none=True)
        optimizer.load_state_dict(optimizer_state)
        for other, state in zip(others, states, strict=True):
            other.load_state_dict(state)
        _restore_generators(generators)
    pairs = [
        ("the model", tensors, _tensors(model)),
        ("the optimizer's state", optimizer_state, optimizer.state_dict()),
        ("what the optimizer keeps beside its state", kept_apart, _kept_apart(optimizer, kept_apart)),
        *(
            (f"the state of {type(other).__name__}", state, other.state_dict())
            for other, state in zip(others, states, strict=True)
        ),
        ("the random generators", generators, _generators()),
    ]
    differences = {name: _difference(before, after) for name, before, after in pairs}
    changed = [f"{name} ({where})" for name, where in differences.items() if where is not None]
    if changed:
        raise LaunchError(
            f"The warm-up has left a trace in {' and in '.join(changed)}: what was set back is not what "
            f"it was. Initialisation may not change what training starts from; leave the warm-up out, or let "
            f"load_state_dict() set back all that a step changes."
        )


_MISSING = object()


def _difference(before: Any, after: Any) -> str | None:
    """First difference between nested mappings and sequences of tensors, arrays and plain values, as the path of names
    to it; None without one."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        names = list(dict.fromkeys((*before, *after)))
        parts = [(name, before.get(name, _MISSING), after.get(name, _MISSING)) for name in names]
    elif isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)) and len(before) == len(after):
        parts = list(zip(range(len(before)), before, after, strict=True))
    else:
        return None if _same(before, after) else ""
    for name, old, new in parts:
        where = _difference(old, new)
        if where is not None:
            return f"{name}.{where}" if where else str(name)
    return None


def _same(before: Any, after: Any) -> bool:
    """Bitwise equality of tensors and arrays."""
    if isinstance(before, torch.Tensor):
        alike = isinstance(after, torch.Tensor) and (after.dtype, after.shape) == (before.dtype, before.shape)
        return alike and torch.equal(_bits(before), _bits(after))
    if isinstance(before, np.ndarray):
        return np.array_equal(before, after)
    return bool(before == after)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return own_part(tensor.detach()).contiguous().reshape(-1).view(torch.uint8).cpu()


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers that this rank holds."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: own_part(tensor.detach()) for name, tensor in tensors.items()}


def _kept_apart(optimizer: torch.optim.Optimizer, names: Container[str] | None = None) -> dict[str, Any]:
    """Counters and tensors that are attributes of an optimizer, those of `names` or all: `load_state_dict` does not
    set them back."""
    counts = (int, float, torch.Tensor, np.ndarray)
    return {
        name: value
        for name, value in vars(optimizer).items()
        if isinstance(value, counts) and not isinstance(value, bool) and (names is None or name in names)
    }


def _generators() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": np.random.get_state(legacy=False),
        "python": random.getstate(),
    }


def _restore_generators(generators: dict[str, Any]) -> None:
    torch.set_rng_state(generators["torch"])
    if generators["cuda"]:
        torch.cuda.set_rng_state_all(generators["cuda"])
    np.random.set_state(generators["numpy"])
    random.setstate(generators["python"])
