"""Networks constructed without memory, and their start values drawn afterwards, a tensor at a time.

Torch's generator goes through the same draws as on the way through the constructors, so that a seed gives the same
weights, however many ranks share them; a rank has its shards and one whole tensor in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from train_bench.core.sharded_tensors import own_part, own_slices
from train_bench.errors import LaunchError

aten = torch.ops.aten

DRAWS = (aten.normal_.default, aten.uniform_.default)
CONSTANTS = (aten.fill_.Scalar, aten.zero_.default)
FACTORIES: Mapping[Any, float] = {
    aten.zeros.default: 0.0,
    aten.new_zeros.default: 0.0,
    aten.ones.default: 1.0,
    aten.new_ones.default: 1.0,
}


@dataclass(frozen=True, slots=True)
class Fill:
    """One of the operations that fill a tensor; of what ended as no parameter or buffer, `name` is None."""

    name: str | None
    shape: torch.Size
    dtype: torch.dtype
    operator: Any
    arguments: tuple[Any, ...]


class Fills(TorchDispatchMode):
    """Record of what the tensors of a network are filled with, in order, while it is constructed on `meta`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen: list[tuple[Tensor, Any, tuple[Any, ...]]] = []
        self._fills: list[Fill] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in FACTORIES:
            self._seen.append((result, aten.fill_.Scalar, (FACTORIES[func],)))
        elif func._schema.is_mutable and args and isinstance(args[0], Tensor) and args[0].is_meta:
            self._seen.append((args[0], func, args[1:]))
        return result

    def construct(self, make: Callable[[], nn.Module]) -> nn.Module:
        """The network that `make` constructs, on `meta`. Raises `LaunchError` for start values that are neither drawn
        from a normal or a uniform distribution nor constant."""
        with torch.device("meta"), self:
            model = make()
        named = _named(model)
        names = {_storage(one): name for name, one in named.items()}
        for tensor, fill, arguments in self._seen:
            name = names.get(_storage(tensor))
            self._fills.append(Fill(name, tensor.shape, tensor.dtype, fill, arguments))
            if name is not None and (fill not in (*DRAWS, *CONSTANTS) or tensor.shape != named[name].shape):
                raise LaunchError(
                    f"{type(model).__name__} starts {name} by {fill} on {tuple(tensor.shape)}; a network that is built "
                    "sharded fills whole tensors by nn.init.normal_, uniform_ and constants. Use launcher=torchrun "
                    "without sharding, or change its initialisation."
                )
        self._seen.clear()
        return model

    @torch.no_grad()
    def draw(self, model: nn.Module) -> None:
        """Fill this rank's shards of the network that was constructed, in which a tensor may have been replaced by one
        of its name, of another type. What nothing fills is NaN."""
        named = _named(model)
        last = {fill.name: number for number, fill in enumerate(self._fills)}
        for name in named.keys() - last.keys():
            own_part(named[name].detach()).fill_(torch.nan)
        for number, fill in enumerate(self._fills):
            kept = fill.name is not None and last[fill.name] == number
            if kept or fill.operator in DRAWS:
                values = torch.empty(fill.shape, dtype=fill.dtype)
                fill.operator(values, *fill.arguments)
                if fill.name is not None and kept:
                    own_part(named[fill.name].detach()).copy_(values[own_slices(named[fill.name])])


def _named(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _storage(tensor: Tensor) -> int:
    """A parameter and the tensor that it was made of have the same."""
    return int(tensor.untyped_storage()._cdata)
