"""Page cache of a file: its resident share by mincore(2), and files made cold or warm with proof."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from train_bench.core import files
from train_bench.errors import LaunchError, RequestError

COLD, WARM = 0.01, 0.99
"""Resident share below which a file is cold, and above which it is warm."""

TRIES = 5
"""Pages that are just being written, or that another processor has in its lists, are dropped at the next try."""

IN_MEMORY = ("tmpfs", "ramfs")
"""File systems whose files lie in the page cache and nowhere else."""

PROBE_BYTES = 2**20


def resident_share(path: Path) -> float:
    """Share of a file's pages that are in the page cache, from 0 to 1; 1 for an empty file. The kernel answers it for
    files that the user owns or may write."""
    with files.opened(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return 1.0
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    content = np.frombuffer(mapping, np.uint8)
    pages = np.zeros(-(-content.size // mmap.PAGESIZE), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    if libc.mincore(content.ctypes.data, content.size, pages.ctypes.data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return float((pages & 1).mean())


def make_cold(path: Path) -> float:
    """Write a file out and drop its pages; returns the resident share. Raises `LaunchError` where pages stay: the
    kernel keeps what a process maps or a file system holds in memory."""
    for _ in range(TRIES):
        with files.opened(path) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        share = resident_share(path)
        if share < COLD:
            return share
    raise LaunchError(
        f"{path} cannot be made cold: {100 * share:.1f} % of it stay in the page cache after posix_fadvise(DONTNEED), "
        f"and less than {100 * COLD:.0f} % is cold. A process may map it; its file system is "
        f"{file_system(path) or 'unknown'}."
    )


def make_warm(path: Path) -> float:
    """Read a file to its end; returns the resident share. Raises `LaunchError` where the memory does not hold it."""
    with files.opened(path) as file:
        while file.read(2**20):
            pass
    share = resident_share(path)
    if share <= WARM:
        raise LaunchError(
            f"{path} does not stay in the page cache: {100 * share:.1f} % of it are there after it was read, and "
            f"more than {100 * WARM:.0f} % is warm. Free some memory, or measure a smaller model."
        )
    return share


def refuse_memory(folder: Path) -> None:
    """Raise `RequestError` if files in an existing `folder` cannot be made cold, by trying it with one."""
    probe = folder / f"probe_{os.getpid()}"
    try:
        probe.write_bytes(os.urandom(PROBE_BYTES))
        make_cold(probe)
    except LaunchError as error:
        kind = file_system(folder) or "a file system that keeps its pages"
        raise RequestError(
            f"{folder} lies on {kind}, whose files cannot be made cold: they stay in memory whatever is dropped. Give "
            f"a folder on a disk (--disk DIR), or leave L0 out (--levels L1,L2,L3,L4). Nothing was started."
        ) from error
    finally:
        probe.unlink(missing_ok=True)


def file_system(path: Path) -> str | None:
    """Type of the file system that a path is on (`ext4`, `tmpfs`), from /proc/self/mountinfo; None: unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        device = os.stat(path).st_dev  # noqa: PTH116 a folder or a file
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts:
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == number:
            return kind.split()[0]
    return None
