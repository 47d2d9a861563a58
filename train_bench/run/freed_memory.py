"""Freed memory of this process, which glibc otherwise gives back to the system and faults in again at every step."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt`."""

OWN_SETTINGS = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_")
"""Variables by which a user sets what glibc does with freed memory."""


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Have this process keep what it frees for its next allocation, unless the user has set this otherwise. A training
    step frees and allocates the same sizes again. False where nothing was set: without glibc, or by `OWN_SETTINGS`."""
    if sys.platform != "linux" or any(name in environ for name in OWN_SETTINGS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    return mallopt is not None and mallopt(M_MMAP_MAX, 0) == 1 and mallopt(M_TRIM_THRESHOLD, -1) == 1
