"""FLOP of grouped matrix products (mixtures of experts), which torch's table lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _grouped(one: Any, other: Any, *_: Any, out_val: Any = None, **__: Any) -> int:
    """Every row meets one matrix, whatever the groups; with two matrices the groups divide the summed dimension."""
    return int(2 * one.shape[0] * one.shape[1] * other.shape[-1])


GROUPED_FORMULAS: dict[Any, Callable[..., int]] = {torch.ops.aten._grouped_mm: _grouped}
