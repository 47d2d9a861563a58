"""Measured peak performance of this machine, by all ranks at once: matrix product and memory bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from train_bench.core.job import Precision

SIDES = {"cpu": (256, 512, 1024, 2048), "cuda": (1024, 2048, 4096, 8192, 16384)}
"""Sides of the square products. A GPU reaches its rate above 4096 only."""

SECONDS = 0.05
"""Seconds per size. The sweep ends after a product that takes longer."""

TRIAD_BYTES = {"cpu": (2**18, 2**20, 2**22, 2**24, 2**26), "cuda": (2**22, 2**24, 2**26, 2**28, 2**30)}
"""Bytes of each of the triad's three arrays: from cache size to more."""

REPETITIONS = 3
CALLS = 1000
"""Most calls of a repetition on a GPU."""

DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


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
    dtype = DTYPES.get(precision, torch.float32)
    best, at = (stated_tflops or 0.0) * 1e12, 0
    for side in SIDES[device.type] if stated_tflops is None else ():
        if not _fits(4 * 5 * side**2, device):  # float32 at first, and two of them in the other type
            break
        rate = product_rate(side, dtype, device)
        if rate > best:
            best, at = rate, side
        if 2 * side**3 > rate * SECONDS:
            break
    moved = {
        3 * size: triad_rate(size, device) for size in TRIAD_BYTES[device.type] if _fits(3 * size, device)
    }
    if device.type == "cuda":  # the memory of the step is measured next
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    source = "stated"
    if stated_tflops is None:
        source = f"measured here by a {precision.value} matrix product of size {at}, all ranks at once"
    return Peak(flop_per_second=best, bytes_per_second=moved, source=source)


def product_rate(side: int, dtype: torch.dtype, device: torch.device) -> float:
    """FLOP/s of a product of two square matrices."""
    one, other = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    into = torch.empty_like(one)
    return 2 * side**3 * per_second(lambda: torch.mm(one, other, out=into), device)


def triad_rate(size: int, device: torch.device) -> float:
    """Bytes/s of a triad over three arrays of `size` bytes."""
    one, other, into = (torch.ones(size // 4, device=device) for _ in range(3))
    return 3 * size * per_second(lambda: torch.add(one, other, alpha=3.0, out=into), device)


def link_rates(size: int, device: torch.device, *, pinned: bool) -> tuple[float, float]:
    """Bytes/s of copies of `size` bytes from the host to a device, and back."""
    there, host = torch.empty(size // 4, device=device), torch.rand(size // 4)
    if pinned:
        host = host.pin_memory()
    to = per_second(lambda: there.copy_(host, non_blocking=True), device)
    back = per_second(lambda: host.copy_(there, non_blocking=True), device)
    return size * to, size * back


def _fits(size: int, device: torch.device) -> bool:
    """Whether so many bytes are at most half of a GPU's free memory."""
    return device.type != "cuda" or 2 * size <= torch.cuda.mem_get_info(device)[0]


def per_second(work: Callable[[], object], device: torch.device) -> float:
    """Rate of the fastest of several repetitions, which is the undisturbed one."""
    work()
    if device.type != "cpu":
        return _queued_per_second(work, device)
    fastest, until = float("inf"), time.perf_counter() + SECONDS
    while True:
        began = time.perf_counter()
        work()
        now = time.perf_counter()
        fastest = min(fastest, now - began)
        if now > until:
            return 1 / fastest


def _queued_per_second(work: Callable[[], object], device: torch.device) -> float:
    """Rate of an accelerator over many calls, which wait in its queue: neither launches nor the host's waiting
    count."""
    calls, taken = 1, _seconds(work, 1, device)
    while taken < SECONDS / REPETITIONS and calls < CALLS:
        calls = min(CALLS, 4 * calls)
        taken = _seconds(work, calls, device)
    return calls / min(_seconds(work, calls, device) for _ in range(REPETITIONS))


def _seconds(work: Callable[[], object], calls: int, device: torch.device) -> float:
    """Seconds of so many calls: by events of a CUDA device, of any other from the host's first call to the end of the
    queue."""
    if device.type != "cuda":
        torch.accelerator.synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            work()
        torch.accelerator.synchronize(device)
        return time.perf_counter() - start
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(calls):
        work()
    ended.record()
    torch.cuda.synchronize(device)
    return float(began.elapsed_time(ended)) / 1000
