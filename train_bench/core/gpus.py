"""GPUs of this host as NVIDIA's driver lists them, without torch."""

from __future__ import annotations

from pathlib import Path

LISTED = Path("/proc/driver/nvidia/gpus")


def are_here() -> bool:
    """True if the driver lists a GPU."""
    return any(LISTED.glob("*"))
