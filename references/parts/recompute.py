"""Activation checkpointing of a network's layers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten

PRODUCTS = [
    *(aten.mm.default, aten.addmm.default, aten.bmm.default),
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
]
"""Matrix products and attention: nearly all of the computation of a layer."""


def recompute(layers: Iterable[nn.Module], *, draws: bool = False, keep_products: bool = False) -> None:
    """Let each of `layers` keep its inputs alone, or with `keep_products` what `PRODUCTS` give, too, and compute the
    rest again when the backward pass needs it (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
    Numbers are the same; layers may draw random ones only with `draws`, which keeps the state of torch's generators
    for each."""
    how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": draws}
    if keep_products:
        how["context_fn"] = partial(create_selective_checkpoint_contexts, PRODUCTS)
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, **how)
