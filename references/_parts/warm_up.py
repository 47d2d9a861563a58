"""Warm-up before the clock that leaves no trace: kernels are compiled and memory is reserved, numbers
are as before (rules: initialisation may not change the model's state)."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from train_bench.parallel import Parallel


@contextmanager
def without_trace(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, parallel: Parallel
) -> Iterator[None]:
    """Whatever happens inside, afterwards parameters, buffers, gradients, optimizer state, learning
    rates, what `parallel` keeps, module modes and the generators of torch, CUDA, numpy and python are
    as they were. Tensors are written in place, so wrappers and compiled code stay valid.
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
