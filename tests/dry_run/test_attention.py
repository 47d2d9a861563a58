"""Kernels that attention has on a GPU, on meta tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from train_bench.core.job import Device
from train_bench.dry_run.attention import attention_of


class Attention(TorchDispatchMode):
    """Kernels of attention that were called, and the heads of their keys."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[str, int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if "attention" in name:
            self.found.append((name, args[1].shape[1]))
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(
    ("dtype", "kernel", "heads"),
    [
        (torch.bfloat16, "_scaled_dot_product_flash_attention", 2),
        (torch.float32, "_scaled_dot_product_efficient_attention", 8),
    ],
)
def test_heads_that_share_keys_and_values_have_copies_in_fp32_alone(
    dtype: torch.dtype, kernel: str, heads: int
) -> None:
    query, shared = (torch.empty(1, count, 16, 64, dtype=dtype, device="meta") for count in (8, 2))
    with attention_of(Device.cuda), Attention() as called:
        functional.scaled_dot_product_attention(query, shared, shared, is_causal=True, enable_gqa=True)
    assert called.found == [(kernel, heads)]
