"""GPUs of this host as NVIDIA's driver lists them, without torch."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

DRIVER = Path("/proc/driver/nvidia/version")
LISTED = Path("/proc/driver/nvidia/gpus")

# Numbers of nvml.h, which pynvml has under the names NVML_CLOCK_SM, NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
# NVML_VOLATILE_ECC and nvmlClocksThrottleReason*. A power cap is the usual state of a GPU under load.
SM_CLOCK, UNCORRECTED, SINCE_RESET = 1, 1, 0
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


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
    limit = _ask(uuid, lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu))
    return None if limit is None else int(limit / 1000 + 0.5)


def largest_clock_mhz(uuid: str) -> int | None:
    """Highest clock that the multiprocessors of a GPU may have; None as above."""
    return _ask(uuid, lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxClockInfo(gpu, SM_CLOCK)))


def state(uuid: str) -> dict[str, Any]:
    """State of a GPU at this moment: its clock, uncorrected memory errors since the last reset, and why its hardware
    slows it down. Values that pynvml does not know are left out."""
    reasons = _ask(uuid, lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)))
    found = {
        "clock_mhz": _ask(uuid, lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, SM_CLOCK))),
        "uncorrected_ecc_errors": _ask(
            uuid, lambda nvml, gpu: int(nvml.nvmlDeviceGetTotalEccErrors(gpu, UNCORRECTED, SINCE_RESET))
        ),
        "slowdowns": None if reasons is None else [name for bit, name in SLOWDOWNS.items() if reasons & bit],
    }
    return {name: value for name, value in found.items() if value is not None}


def _ask(uuid: str, question: Callable[[Any, Any], T]) -> T | None:
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
        return question(nvml, gpu)
    except Exception:  # NVMLError, of a module that may not be there
        return None
