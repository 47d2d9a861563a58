"""Networks without the draws of their start values, which others replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

M = TypeVar("M", bound=nn.Module)

DRAWS = (torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default)


class _Undrawn(TorchDispatchMode):
    """Leaves tensors as they are instead of drawing them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in DRAWS else func(*args, **(kwargs or {}))


def undrawn(make: Callable[[], M]) -> Callable[[], M]:
    """`make`, but for normal and uniform draws: 70 billion weights take half an hour."""

    def made() -> M:
        with _Undrawn():
            return make()

    return made
