"""Compilation of networks by torch in the modes of `benchmark.compile`, in the warm-up: on the first call, and of CUDA
graphs on the second, too. What compiles kernels."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from collections.abc import Iterator

import torch
from torch import nn

from train_bench.errors import RequestError

OPTIONS = {
    "model": None,
    "blocks": None,
    "max-autotune": "max-autotune-no-cudagraphs",
    "graphs": "reduce-overhead",
}
"""torch's `mode` by ours. Those of torch that record CUDA graphs are for `graphs` alone."""

VARIANTS = 64
"""Compiled variants of one layer: of every shape that a network repeats it in, in training and in evaluation. Beyond
torch's limit of 8 it would run uncompiled."""


def compile_model(model: nn.Module, mode: str | None, device: torch.device) -> None:
    """Have `model` compiled in place when it is first called; None leaves it as it is."""
    if mode is None:
        return
    if mode == "graphs" and device.type != "cuda":
        raise RequestError(
            "benchmark.compile=graphs records CUDA graphs and no GPU was found; use model or blocks."
        )
    parts = [model]
    if mode == "blocks":
        parts = list(blocks(model))
        if not parts:
            raise RequestError(
                f"benchmark.compile=blocks compiles repeated layers and {type(model).__name__} has none; use model."
            )
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    for part in parts:
        part.compile(mode=OPTIONS[mode])


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The outermost layers in lists and sequences that are of a network's own class, not of torch's."""
    for child in model.children():
        if isinstance(model, (nn.ModuleList, nn.Sequential)) and not type(child).__module__.startswith(
            "torch."
        ):
            yield child
        else:
            yield from blocks(child)


@functools.cache
def triton_builds() -> bool:
    """True if Triton is installed, and a C compiler, with which it builds what starts its kernels."""
    compilers = (os.environ.get("CC"), shutil.which("gcc"), shutil.which("clang"))
    return importlib.util.find_spec("triton") is not None and any(compilers)
