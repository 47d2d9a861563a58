"""System description: the machine and its software as a rank detects them, as opposed to the request."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from train_bench.core import software

GPUS = Path("/proc/driver/nvidia/gpus")


def describe() -> dict[str, Any]:
    """Processors, memory, accelerators, operating system and versions, as plain data. torch is queried if this process
    has imported it."""
    torch = sys.modules.get("torch")
    return {
        "host": platform.node(),
        "processor": _processor(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "accelerators": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        if torch
        else list(_gpus()),
        "operating_system": _operating_system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": software.versions(),
        "cuda": torch.version.cuda if torch and torch.cuda.is_available() else None,
        "environment": software.variables(),
        "threads_per_rank": torch.get_num_threads() if torch else None,
    }


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def platform_name(machine: dict[str, Any], *, nodes: int) -> str:
    """One line that names a machine: hosts, and accelerators or else processors."""
    accelerators = machine["accelerators"]
    if accelerators:
        return f"{nodes} x ({len(accelerators)} x {accelerators[0]})"
    return f"{nodes} x ({machine['cores']} cores of {machine['processor']})"


def _gpus() -> Iterator[str]:
    """GPUs listed by NVIDIA's driver."""
    for path in sorted(GPUS.glob("*/information")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Model:"):
                yield line.partition(":")[2].strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()
