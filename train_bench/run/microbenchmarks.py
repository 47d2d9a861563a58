"""Rates of a device: matrix product, memory, link to the host, and the time of any other work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from train_bench.core.job import Precision

SECONDS = 0.05
"""Seconds of a measurement."""

REPETITIONS = 3
CALLS = 1000
"""Most calls of a repetition on a GPU."""

DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
"""Types of the matrices of a product; float32 for any other precision."""


def product_rate(side: int, dtype: torch.dtype, device: torch.device) -> float:
    """FLOP/s of a product of two square matrices. Its random numbers are none of the process's own."""
    draws = torch.Generator(device).manual_seed(0)
    one, other = (torch.randn(side, side, device=device, generator=draws).to(dtype) for _ in range(2))
    into = torch.empty_like(one)
    return 2 * side**3 * per_second(lambda: torch.mm(one, other, out=into), device)


def settled_product_rate(side: int, dtype: torch.dtype, device: torch.device, seconds: float) -> float:
    """FLOP/s of products that go on for so many seconds: the median of the second half, of a chip at its working
    temperature."""
    rates: list[float] = []
    until = time.monotonic() + seconds
    while not rates or time.monotonic() < until:
        rates.append(product_rate(side, dtype, device))
    return statistics.median(rates[len(rates) // 2 :])


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
