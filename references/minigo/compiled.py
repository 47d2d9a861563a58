"""Array functions compiled on first call, and the cache of the result.

Compiling takes longer than a small run, so it is kept between processes. The kept code knows when its own file
changes but not when a file changes whose functions it has taken in; the folder is therefore named after the
contents of all of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

SOURCES = ("game.py", "pass_alive.py", "scoring.py", "search.py", "trees.py")

F = TypeVar("F", bound=Callable[..., Any])


def _kept_in() -> str:
    folder = Path(__file__).parent
    digest = hashlib.sha256(b"".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return str(cache / "train_bench" / "compiled" / f"minigo-{digest[:16]}")


if "NUMBA_CACHE_DIR" not in os.environ:
    cast(Any, numba.config).CACHE_DIR = _kept_in()


def compiled(function: F) -> F:
    """`function` in machine code. With NUMBA_DISABLE_JIT=1 it stays plain Python, with equal results."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
