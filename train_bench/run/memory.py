"""Peak memory of the ranks of a run, read when the clock stands."""

from __future__ import annotations

import resource
import sys
from typing import TYPE_CHECKING, Any

from train_bench.run.processors import Ranks

if TYPE_CHECKING:
    import torch


def peak_bytes(device: torch.device) -> tuple[int, int | None]:
    """Most memory that this process has had since its start, and most that its tensors have had on a GPU (None on a
    CPU)."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return host, sys.modules["torch"].cuda.max_memory_allocated(device) if device.type == "cuda" else None


def gather(ranks: Ranks, peak: tuple[int, int | None]) -> dict[str, Any] | None:
    """Called by every rank with its peak. On rank 0, as logged: bytes of the host and of the device by rank; the latter
    None without GPUs."""
    peaks = ranks.gather_objects(peak)
    if peaks is None:
        return None
    host, device = zip(*peaks, strict=True)
    return {"host_bytes": list(host), "device_bytes": None if None in device else list(device)}
