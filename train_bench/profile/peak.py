"""Measured peak performance of this machine, by all ranks at once: matrix product and memory bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from train_bench.core.job import Precision
from train_bench.run import microbenchmarks

SIDES = {"cpu": (256, 512, 1024, 2048), "cuda": (1024, 2048, 4096, 8192, 16384)}
"""Sides of the square products. A GPU reaches its rate above 4096 only."""

TRIAD_BYTES = {"cpu": (2**18, 2**20, 2**22, 2**24, 2**26), "cuda": (2**22, 2**24, 2**26, 2**28, 2**30)}
"""Bytes of each of the triad's three arrays: from cache size to more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Peak of one rank: FLOP/s of the best square matrix product, and the bytes/s of a triad (two arrays read, one
    written) by its size in bytes. `source` is the origin of the first."""

    flop_per_second: float
    bytes_per_second: Mapping[int, float]
    source: str

    def moving(self, moved: float) -> float:
        """Minimum seconds to move so many bytes: at the best rate of a triad of this size or more."""
        rates = [rate for size, rate in self.bytes_per_second.items() if size >= moved]
        return moved / (max(rates) if rates else self.bytes_per_second[max(self.bytes_per_second)])


def measure(device: torch.device, precision: Precision, stated_tflops: float | None) -> Peak:
    """Measure the peak with a sweep, unless it is stated."""
    dtype = microbenchmarks.DTYPES.get(precision, torch.float32)
    best, at = (stated_tflops or 0.0) * 1e12, 0
    for side in SIDES[device.type] if stated_tflops is None else ():
        if not _fits(4 * 5 * side**2, device):  # float32 at first, and two of them in the other type
            break
        rate = microbenchmarks.product_rate(side, dtype, device)
        if rate > best:
            best, at = rate, side
        if 2 * side**3 > rate * microbenchmarks.SECONDS:  # larger ones would take longer
            break
    moved = {
        3 * size: microbenchmarks.triad_rate(size, device)
        for size in TRIAD_BYTES[device.type]
        if _fits(3 * size, device)
    }
    if device.type == "cuda":  # the memory of the step is measured next
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    source = "stated"
    if stated_tflops is None:
        source = f"measured here by a {precision.value} matrix product of size {at}, all ranks at once"
    return Peak(flop_per_second=best, bytes_per_second=moved, source=source)


def _fits(size: int, device: torch.device) -> bool:
    """Whether so many bytes are at most half of a GPU's free memory."""
    return device.type != "cuda" or 2 * size <= torch.cuda.mem_get_info(device)[0]
