"""Networks constructed without memory, and their start values drawn afterwards, a tensor at a time.

Torch's generator goes through the same draws as on the way through the constructors, so that a seed gives the same
weights, however many ranks share them; a rank has its shards and one whole tensor in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class Fills(TorchDispatchMode):
    """Record of what the tensors of a network are filled with, in order, while it is constructed on `meta`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fills: list[tuple[Tensor, Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in FACTORIES:
            self._fills.append((result, aten.fill_.Scalar, (FACTORIES[func],)))
        elif func._schema.is_mutable and args and isinstance(args[0], Tensor) and args[0].is_meta:
            self._fills.append((args[0], func, args[1:]))
        return result

    def construct(self, make: Callable[[], nn.Module]) -> nn.Module:
        """The network that `make` constructs, on `meta`. Raises `LaunchError` for start values that are neither drawn
        from a normal or a uniform distribution nor constant."""
        with torch.device("meta"), self:
            model = make()
        self._names = {_storage(one): name for name, one in _named(model).items()}
        for tensor, fill, _ in self._fills:
            name = self._names.get(_storage(tensor))
            if name is None:
                continue
            if fill not in (*DRAWS, *CONSTANTS) or tensor.shape != _named(model)[name].shape:
                raise LaunchError(
                    f"{type(model).__name__} starts {name} by {fill} on {tuple(tensor.shape)}; a network that is built "
                    "sharded fills whole tensors by nn.init.normal_, uniform_ and constants. Use launcher=torchrun "
                    "without sharding, or change its initialisation."
                )
        return model

    @torch.no_grad()
    def draw(self, model: nn.Module) -> None:
        """Fill this rank's shards of the network that was constructed. What nothing fills is NaN."""
        named = _named(model)
        last = {
            self._names.get(_storage(tensor)): number for number, (tensor, _, _) in enumerate(self._fills)
        }
        for name in named.keys() - last.keys():
            own_part(named[name].detach()).fill_(torch.nan)
        for number, (tensor, fill, args) in enumerate(self._fills):
            filled = self._names.get(_storage(tensor))
            kept = filled is not None and last[filled] == number
            if kept or fill in DRAWS:
                values = torch.empty(tensor.shape, dtype=tensor.dtype)
                fill(values, *args)
                if filled is not None and kept:
                    own_part(named[filled].detach()).copy_(values[own_slices(named[filled])])


def _named(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _storage(tensor: Tensor) -> int:
    """A parameter and the tensor that it was made of have the same."""
    return int(tensor.untyped_storage()._cdata)
