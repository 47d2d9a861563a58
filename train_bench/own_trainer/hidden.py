"""Files that a user's program cannot read although its user may: it is started in a mount namespace that has something
empty in their places (Linux, where the system allows user namespaces).

The places are mounted in one user namespace, and the program starts in a second one inside it, whose mounts are locked
together: neither there nor by `/proc` of a process outside does it get at the files, even as root.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18

LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def hide(paths: Sequence[Path]) -> None:
    """Move this process, which has one thread, into namespaces in which the files are empty and the folders have no
    content. Raises `OSError` where the system refuses it."""
    enter()
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    for path in paths:
        if path.is_dir():
            mount("none", str(path), "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=0555")
        else:
            mount("/dev/null", str(path), None, MS_BIND)
    os.chdir(Path.cwd())  # what is relative to a working folder below a mount would lead past it
    enter()


def can_hide(paths: Sequence[Path]) -> bool:
    """True if a process of this one can be started without these files: one tries it."""

    def is_hidden() -> bool:
        hide(paths)
        return all(not any(path.iterdir()) if path.is_dir() else not path.read_bytes() for path in paths)

    return bool(paths) and holds_in_a_child(is_hidden)


def holds_in_a_child(condition: Callable[[], bool]) -> bool:
    """True if the condition holds in a process of this one, which changes its namespaces; False where it fails."""
    if LIBC is None:
        return False
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if condition() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def enter(further: int = 0) -> None:
    """New user and mount namespaces, and `further` ones, in which this user is who it was."""
    user, group = os.geteuid(), os.getegid()
    assert LIBC is not None
    check(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS | further))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path("/proc/self", name).write_text(text, encoding="ascii")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2). Raises `OSError`."""
    assert LIBC is not None
    words = (None if word is None else os.fsencode(word) for word in (source, target, kind))
    check(LIBC.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode()))


def check(result: int) -> None:
    """Raise `OSError` where a call of the C library has failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
