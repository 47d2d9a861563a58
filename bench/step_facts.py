"""Facts of a training step on a GPU for `references.py` and `train-bench gpu-check`: peak memory, FLOP, host
synchronisations, kernel launches, longest kernels and the attention kernel. A module; it has no command line."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from train_bench.profile.operators import ATTENTION, LAUNCH

STEPS = 3
LONGEST = 10


def gpu_facts(step: Callable[[], object]) -> dict[str, Any]:
    """Peak bytes of the second of two steps, FLOP of another, then counts by step over three more."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    counter = FlopCounterMode(display=False)
    with (
        suppress(RuntimeError),
        counter,
    ):  # compiled steps may refuse a mode; their FLOP are those counted so far
        step()
    syncs = _syncs(step)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    launches, kernels = 0, Counter[str]()
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CPU:
            launches += bool(LAUNCH.fullmatch(event.name))
        elif not event.is_user_annotation and not event.name.startswith("Mem"):
            kernels[event.name] += event.time_range.elapsed_us()
    counts = {"flop_per_step": counter.get_total_flops(), "syncs_per_step": syncs}
    return (
        counts
        | {"peak_bytes": peak, "launches_per_step": launches / STEPS}
        | named({name: microseconds / 1e6 / STEPS for name, microseconds in kernels.items()})
    )


def named(kernels: dict[str, float]) -> dict[str, Any]:
    """Kernels by seconds of a step: the longest, and the attention kernel (none: null)."""
    ranked = sorted(kernels.items(), key=lambda item: -item[1])
    return {
        "kernels": [{"name": name[:120], "seconds": seconds} for name, seconds in ranked[:LONGEST]],
        "attention_kernel": next((name[:120] for name, _ in ranked if ATTENTION.search(name)), None),
    }


def _syncs(step: Callable[[], object]) -> float:
    """Host synchronisations of a step, as torch's own debug mode sees them."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(STEPS):
                step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in caught) / STEPS
