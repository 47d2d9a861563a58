"""Attention with GPU memory behaviour: scores are recomputed in the backward pass and not kept. torch's CPU kernel
keeps them with dropout, and meta tensors need a CPU's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

from train_bench.core.job import Device

aten = torch.ops.aten


@contextmanager
def attention_of(device: Device) -> Iterator[None]:
    """Context: `scaled_dot_product_attention` is that of this device."""
    if device is Device.cuda:
        with patch.object(functional, "scaled_dot_product_attention", _on_a_gpu):
            yield
    else:
        yield


def _on_a_gpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if (
        enable_gqa and query.dtype is torch.float32
    ):  # a model repeats them itself where the kernel shares none
        key, value = (part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in (key, value))
    elif enable_gqa:
        shared = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, scale=scale
        )
        return cast(Tensor, shared[0])
    bias = attn_mask
    if bias is not None:
        if bias.dtype is torch.bool:
            bias = torch.empty_like(bias, dtype=query.dtype)
        bias = bias.expand(*query.shape[:3], key.shape[2])
    kernel = aten._scaled_dot_product_efficient_attention
    mixed: Tensor = kernel(query, key, value, bias, True, dropout_p, is_causal, scale=scale)[0]
    return mixed


def _backward(
    gradient: Any, query: Any, key: Any, value: Any, *_: Any, out_val: Any = None, **__: Any
) -> int:
    """FLOP of four products. Flash kernels recompute the scores, which is not attention's own work; torch's table
    counts it."""
    batch, heads, queries, width = query.shape
    products = 2 * batch * heads * queries * key.shape[2]
    return int(2 * products * width + 2 * products * value.shape[3])


ATTENTION_FORMULAS: dict[Any, Callable[..., int]] = dict.fromkeys(
    (
        aten._scaled_dot_product_efficient_attention_backward,
        aten._scaled_dot_product_flash_attention_backward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward,
    ),
    _backward,
)
