"""Warm-up before the clock that leaves no trace: kernels are compiled and memory is reserved, numbers
are as before (rules: initialisation may not change the model's state)."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from train_bench.errors import LaunchError
from train_bench.parallel import Parallel


@contextmanager
def without_trace(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, parallel: Parallel
) -> Iterator[None]:
    """Whatever happens inside, afterwards parameters, buffers, gradients, optimizer state, learning
    rates, what `parallel` keeps, module modes and the generators of torch, CUDA, numpy and python are
    as they were. Tensors are written in place, so wrappers and compiled code stay valid.

    That they are is looked at, because an optimizer or a launcher may keep more than it gives back: LaunchError
    names what is not as it was.
    """
    tensors = {name: tensor.detach().clone() for name, tensor in _tensors(model).items()}
    modes = [(module, module.training) for module in model.modules()]
    optimizer_state = copy.deepcopy(optimizer.state_dict())
    parallel_state = copy.deepcopy(parallel.state_dict())
    generators = _generators()
    try:
        yield
    finally:
        with torch.no_grad():
            for name, tensor in _tensors(model).items():
                tensor.copy_(tensors[name])
        for module, training in modes:
            module.training = training
        optimizer.zero_grad(set_to_none=True)
        optimizer.load_state_dict(optimizer_state)
        parallel.load_state_dict(parallel_state)
        _restore_generators(generators)
    pairs = {
        "the model": (tensors, _tensors(model)),
        "the optimizer's state": (optimizer_state, optimizer.state_dict()),
        "the launcher's state": (parallel_state, parallel.state_dict()),
        "the random generators": (generators, _generators()),
    }
    changed = [name for name, (before, after) in pairs.items() if not _same(before, after)]
    if changed:
        raise LaunchError(
            f"The warm-up has left a trace in {' and in '.join(changed)}: what was set back is not what "
            f"it was. Initialisation may not change the model's state; `warm_up_steps=0` runs without a warm-up."
        )


def _same(before: Any, after: Any) -> bool:
    """Of nested mappings and sequences of tensors, arrays and plain values; tensors by their bits."""
    if isinstance(before, torch.Tensor):
        alike = isinstance(after, torch.Tensor) and (after.dtype, after.shape) == (before.dtype, before.shape)
        return alike and torch.equal(_bits(before), _bits(after))
    if isinstance(before, np.ndarray):
        return np.array_equal(before, after)
    if isinstance(before, Mapping):
        return before.keys() == after.keys() and all(
            _same(value, after[key]) for key, value in before.items()
        )
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(map(_same, before, after))
    return bool(before == after)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


_Generators = tuple[torch.Tensor, list[torch.Tensor], dict, tuple]


def _generators() -> _Generators:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return torch.get_rng_state(), cuda, np.random.get_state(legacy=False), random.getstate()


def _restore_generators(generators: _Generators) -> None:
    cpu, cuda, numpy_state, python_state = generators
    torch.set_rng_state(cpu)
    if cuda:
        torch.cuda.set_rng_state_all(cuda)
    np.random.set_state(numpy_state)
    random.setstate(python_state)
