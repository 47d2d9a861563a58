"""Optimizers that do not load torch's compiler, and the check of their names.

torch marks some methods of its optimizers as not to be compiled, and the mark imports the compiler on the first
call: two thirds of a second to two seconds of every rank's start, for nothing where only models are compiled. The
methods themselves are torch's own, found below the mark by `inspect.unwrap`; in a torch that has no mark they are
what they always were.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any

import torch

from train_bench.core.sharded_tensors import is_sharded
from train_bench.errors import UnknownName
from train_bench.references.parts.compilation import triton_builds

HOST = torch.device("cpu")


class Optimizer(torch.optim.Optimizer):
    """Base class of optimizers. Steps are not to be compiled."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class SGD(Optimizer, torch.optim.SGD):
    """torch's SGD, whose step leaves no gradient of its own (torch's `differentiable`, which is not offered)."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Torch's own step. Momentum of a fused one begins with zeros: torch takes memory as it is for it, and where
        the first step is skipped for an overflow, the next one finds that."""
        if not self.state:
            for group in self.param_groups:
                if group["fused"] and group["momentum"] and not group["dampening"]:
                    for weight in group["params"]:
                        self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
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
    """torch's Adagrad, likewise. Of tables with sparse gradients, the rows that have one are read and written alone;
    torch masks whole tables for that."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Torch's own step, but for tables, whose gradients of the same row are summed first."""
        sparse = {
            weight: (group, weight.grad)
            for group in self.param_groups
            for weight in group["params"]
            if weight.grad is not None and weight.grad.is_sparse
        }
        for weight, (group, gradient) in sparse.items():
            if weight.device == HOST or weight.is_meta:
                self._step_of_rows(weight, group, gradient.coalesce())
            else:
                self._step_of_lookups(weight, group, gradient)
            weight.grad = None
        found = inspect.unwrap(torch.optim.Adagrad.step)(self, closure)
        for weight, (_, gradient) in sparse.items():
            weight.grad = gradient
        return found

    def _step_of_rows(self, weight: torch.Tensor, group: dict[str, Any], gradient: torch.Tensor) -> None:
        """Adding sparse tensors of distinct rows takes half the time of `index_add_`."""
        rows, values, state = gradient._indices(), gradient._values(), self.state[weight]
        rate = _rate_of_step(group, state)
        state["sum"].add_(_of_rows(rows, values.square(), weight))
        changes = state["sum"].index_select(0, rows[0]).sqrt_().add_(group["eps"])
        torch.div(values, changes, out=changes)
        weight.add_(_of_rows(rows, changes, weight), alpha=-rate)

    def _step_of_lookups(self, weight: torch.Tensor, group: dict[str, Any], gradient: torch.Tensor) -> None:
        """The same without asking the device how many rows are distinct: a row changes by the sum in the first of its
        places, and by zeros in others. One sum and zeros come in any order to the same."""
        rows, values = row_sums(gradient._indices()[0], gradient._values())
        state = self.state[weight]
        rate = _rate_of_step(group, state)
        state["sum"].index_add_(0, rows, values.square())
        changes = state["sum"].index_select(0, rows).sqrt_().add_(group["eps"])
        torch.div(values, changes, out=changes)
        weight.index_add_(0, rows, changes, alpha=-rate)


def row_sums(rows: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (n,) in ascending order, and of `values` (n, d) in the first place of each row its sum, in the order of
    `rows`; zeros in its other places. As many places as there are values, so that nothing waits for a number of them.
    """
    ordered, order = rows.sort(stable=True)
    places = torch.arange(len(rows), device=rows.device)
    first = torch.searchsorted(ordered, ordered) == places
    starts = torch.where(first, places, torch.searchsorted(ordered, ordered, right=True))
    return ordered, torch.nn.functional.embedding_bag(order, values, starts, mode="sum")


def _rate_of_step(group: dict[str, Any], state: dict[str, Any]) -> float:
    """Learning rate of the step that begins, which is counted."""
    rate: float = group["lr"]
    if group["lr_decay"]:
        rate /= 1 + float(state["step"]) * group["lr_decay"]
    state["step"] += 1
    return rate


def _of_rows(rows: torch.Tensor, values: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Sparse tensor of a table's shape: `values` (n, d) in `rows` (1, n), distinct and ascending, else 0."""
    return torch.sparse_coo_tensor(rows, values, table.shape, check_invariants=False, is_coalesced=True)


def one_pass(model: torch.nn.Module) -> dict[str, bool]:
    """Settings of SGD for few kernels over the weights of `model`: one on a GPU, else one for each operation."""
    return {"fused" if all(weight.is_cuda for weight in model.parameters()) else "foreach": True}


def kernel_rows(weights: Sequence[torch.Tensor], *states: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """For `layerwise_kernels.py`, a row for each of `weights`: itself, its gradient, its tensor of each of `states`.
    Empty if kernels do not fit: elsewhere than on a GPU, without what compiles them, and for other types and layouts
    than they take."""
    if not on_gpu(weights) or not triton_builds() or any(map(is_sharded, weights)):
        return []
    rows = [
        [weight, _laid_out_as(weight, gradient), *state]
        for weight, *state in zip(weights, *states, strict=True)
        if (gradient := weight.grad) is not None
    ]
    return rows if all(map(_alike, rows)) else []


def on_gpu(weights: Sequence[torch.Tensor]) -> bool:
    """True if all of them are on a GPU."""
    return all(weight.is_cuda for weight in weights)


def _laid_out_as(weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient, or a copy, in the memory layout of its weight."""
    if gradient.stride() == weight.stride():
        return gradient
    return torch.empty_like(weight, dtype=gradient.dtype).copy_(gradient)


def _alike(row: list[torch.Tensor]) -> bool:
    """True if tensors are of fp32 and lie in memory in the same order, without gaps."""
    first = row[0]
    dense = first.is_contiguous() or first.is_contiguous(memory_format=torch.channels_last)
    return dense and all(each.dtype == torch.float32 and each.stride() == first.stride() for each in row)


def require_optimizer(name: str, known: Collection[str]) -> None:
    """Raise `UnknownName` for an `opt_name` that is not among the known ones."""
    if name not in known:
        raise UnknownName(what="optimizer (opt_name)", name=name, known=known)
