"""GPUs of this host as NVIDIA's driver lists them, without torch."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/version")
LISTED = Path("/proc/driver/nvidia/gpus")


def are_here() -> bool:
    """True if the driver lists a GPU."""
    return any(LISTED.glob("*"))


def driver_version() -> str | None:
    """Version of the loaded driver, `580.65.06`; None without one."""
    try:
        found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", DRIVER.read_text(encoding="utf-8"))
    except OSError:
        return None
    return None if found is None else found[1]


def power_limit_watts(uuid: str) -> int | None:
    """Power limit that a GPU keeps to, by its UUID; None if pynvml is not installed or does not know it."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
        return int(nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000 + 0.5)
    except Exception:  # NVMLError, of a module that may not be there
        return None
