"""Tensors of which every rank holds a part (torch's DTensor): whole, and in parts. Any other tensor stays what it is.

Making them whole is an exchange: every rank asks for the same tensors in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def is_sharded(tensor: torch.Tensor) -> bool:
    """True if it is one; asked without importing what it would be."""
    return hasattr(tensor, "full_tensor")


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    held: torch.Tensor = tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return held


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of it, without its history."""
    values = tensor.detach()
    gathered: torch.Tensor = values.full_tensor() if is_sharded(values) else values  # type: ignore[attr-defined]
    return gathered


def whole_state(state: Any, *, keep: bool) -> Any:
    """What a `state_dict` gave, with every tensor whole, those that were not in the memory of the host; without `keep`
    these are dropped one by one."""
    if isinstance(state, Mapping):
        return {name: whole_state(value, keep=keep) for name, value in state.items()}
    if not hasattr(state, "full_tensor"):
        return state
    gathered = whole(state)
    return gathered.cpu() if keep else None


def part(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This rank's part of `values`, which every rank has whole, divided as `like` is. No exchange."""
    if not is_sharded(like):
        return values
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    given = values.to(like.device)
    return distribute_tensor(given, like.device_mesh, like.placements, src_data_rank=None)


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of the outermost lists of layers that have parameters, each of which is divided, and
    gathered, at once."""
    import torch

    found: list[torch.nn.Module] = []
    for child in model.children():
        inner = child if isinstance(child, torch.nn.ModuleList) else ()
        found += inner if len(inner) else layers_of(child)
    return [layer for layer in found if any(True for _ in layer.parameters())]
