"""Confinement of foreign code (Linux, where the system allows user namespaces): a process without network, with memory
that it shares with nobody (`/dev/shm` and that of System V, empty at its start), and with folders that it cannot write.

As for files that are hidden, a second user namespace inside the first locks it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from train_bench.own_trainer import hidden

CLONE_NEWIPC, CLONE_NEWNET = 0x08000000, 0x40000000
SHARED_MEMORY = Path("/dev/shm")

MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
"""Call of Linux 5.12 by its number, which all architectures share: it changes this attribute of a mount alone."""

SIOCSIFADDR, SIOCSIFFLAGS, IFF_UP = 0x8916, 0x8914, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What a process cannot write, but for the folders `writable` in it, and whether it has the network."""

    read_only: Sequence[Path]
    writable: Sequence[Path] = ()
    network: bool = False


def confine(wanted: Confinement) -> None:
    """Confine this process, which has one thread. Raises `OSError` where the system refuses it."""
    own = None if wanted.network else _own_address()
    hidden.enter(CLONE_NEWIPC | (0 if wanted.network else CLONE_NEWNET))
    if not wanted.network:
        _start_loopback(own)
    hidden.mount(None, "/", None, hidden.MS_REC | hidden.MS_PRIVATE)
    if SHARED_MEMORY.is_dir():
        hidden.mount("none", str(SHARED_MEMORY), "tmpfs", hidden.MS_NOSUID | hidden.MS_NODEV, "mode=1777")
    for path in (*wanted.read_only, *wanted.writable):  # its own mount has its own attribute
        hidden.mount(str(path), str(path), None, hidden.MS_BIND | hidden.MS_REC)
    for path in wanted.read_only:
        _set_read_only(path, AT_RECURSIVE)  # with mounts below it
    for path in wanted.writable:
        _set_writable(path)  # itself alone: what is read-only in it stays so
    os.chdir(Path.cwd())  # as when files are hidden
    hidden.enter()


def can_confine(wanted: Confinement) -> bool:
    """True if a process of this one can be confined so: one tries it."""

    def is_confined() -> bool:
        confine(wanted)
        return not any(os.access(path, os.W_OK) for path in wanted.read_only)

    return hidden.holds_in_a_child(is_confined)


def _set_read_only(path: Path, flags: int) -> None:
    _change_mount(path, flags, struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0))


def _set_writable(path: Path) -> None:
    _change_mount(path, 0, struct.pack("QQQQ", 0, MOUNT_ATTR_RDONLY, 0, 0))


def _change_mount(path: Path, flags: int, attributes: bytes) -> None:
    assert hidden.LIBC is not None
    size = ctypes.c_size_t(len(attributes))
    hidden.check(
        hidden.LIBC.syscall(
            MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags), attributes, size
        )
    )


def _own_address() -> str | None:
    """Address that the name of this host leads to; ranks of one host meet there."""
    with contextlib.suppress(OSError, UnicodeError):  # the latter of a label of 64 characters
        return socket.gethostbyname(socket.gethostname())
    return None


def _start_loopback(own: str | None) -> None:
    """Start the one interface that there is, and give it the address of the host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as of_requests:
        fcntl.ioctl(of_requests, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
        if own is not None and not own.startswith("127."):
            address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(own))
            fcntl.ioctl(of_requests, SIOCSIFADDR, struct.pack("16s16s8x", b"lo:0", address))
