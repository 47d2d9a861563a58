"""Sharded tensors (torch's DTensor): gathering and sharding. Any other tensor is unchanged.

Gathering is a collective: every rank gathers the same tensors in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def is_sharded(tensor: torch.Tensor) -> bool:
    """True if it is a DTensor; checked without importing the class."""
    return hasattr(tensor, "full_tensor")


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard."""
    held: torch.Tensor = tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return held


def own_slices(tensor: torch.Tensor) -> tuple[slice, ...]:
    """Place of this rank's shard in the whole tensor."""
    if not is_sharded(tensor):
        return (slice(None),) * tensor.dim()
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    assert isinstance(tensor, DTensor)
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(first, first + size) for first, size in zip(offset, shape, strict=True))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The whole tensor, detached."""
    values = tensor.detach()
    gathered: torch.Tensor = values.full_tensor() if is_sharded(values) else values  # type: ignore[attr-defined]
    return gathered


def holds_first_copy(tensor: torch.Tensor) -> bool:
    """True if of all ranks with the same shard this one is to write it: the first of its mesh, which is rank 0's."""
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    mesh, at = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    if at is None or not bool((mesh.mesh == 0).any()):
        return False
    return all(number == 0 for number, way in zip(at, tensor.placements, strict=True) if way.is_replicate())


def part(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This rank's shard of `values`, which every rank has whole, sharded as `like` is. No communication."""
    if not is_sharded(like):
        return values
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    given = values.to(like.device)
    return distribute_tensor(given, like.device_mesh, like.placements, src_data_rank=None)


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of the outermost lists of layers that have parameters, the units of sharding and gathering."""
    import torch

    found: list[torch.nn.Module] = []
    for child in model.children():
        inner = child if isinstance(child, torch.nn.ModuleList) else ()
        found += inner if len(inner) else layers_of(child)
    return [layer for layer in found if any(True for _ in layer.parameters())]


def casts_weights(module: torch.nn.Module) -> bool:
    """True if the module's own parameters are cast to the numerics of the job wherever it uses them: by autocast, or by
    itself if it says so (`casts_weights`)."""
    import torch

    of_autocast = isinstance(module, (torch.nn.Linear, torch.nn.modules.conv._ConvNd))
    return of_autocast or getattr(module, "casts_weights", False)


@dataclass(frozen=True, slots=True)
class Unit:
    """Modules whose parameters, but for those of earlier units, are gathered together: in the numerics of the job if
    `casts`, else as they are."""

    modules: list[torch.nn.Module]
    casts: bool


def units_of(model: torch.nn.Module, *, casts: bool) -> list[Unit]:
    """Units of sharding and gathering, the model last: its layers, and with `casts` what of them and of the model is
    used in float32, each in a unit before."""
    units: list[Unit] = []
    layers = layers_of(model)
    inner = {module for layer in layers for module in layer.modules()}
    for unit in (*layers, model):
        modules = [one for one in unit.modules() if unit is not model or one not in inner]
        wide = [
            one
            for one in modules
            if any(True for _ in one.parameters(recurse=False)) and not casts_weights(one)
        ]
        if not casts or unit in wide:
            units.append(Unit([unit], casts=False))
            continue
        groups = [[one] for one in wide] if unit is model else [wide]
        units += [Unit(group, casts=False) for group in groups if group]
        units.append(Unit([unit], casts=True))
    return units


def narrow_frozen(model: torch.nn.Module, kind: torch.dtype) -> None:
    """Hold weights that are not trained in `kind` where layers cast them to it whenever they use them: the same numbers
    in half of the memory."""
    for module in model.modules():
        if casts_weights(module):
            for weight in module.parameters(recurse=False):
                if not weight.requires_grad:
                    weight.data = weight.data.to(kind)
