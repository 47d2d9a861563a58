"""The environment in which tests run: a home, caches and a working folder of their own, and none of the user's
variables but those that say where programs are."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests import programs

ROOT = Path(__file__).parents[1]

FOLDER = "TESTS_FOLDER"
"""Variable with the folder of the session: workers of pytest-xdist inherit the environment, and it tells them so."""

REQUIRE_ALL = "TESTS_REQUIRE_ALL"
"""Variable that says that CI was set: programs under test do not see CI itself."""

KEPT = re.compile(
    r"PATH|LD_LIBRARY_PATH|TMPDIR|USER|LOGNAME|SHELL|VIRTUAL_ENV|SLURM_CONF|TRAIN_BENCH_(AXE|CORPUS|PUBLISHED)"
    r"|UPDATE_SNAPSHOTS|TESTS_\w+|(CUDA|NVIDIA|PIP|PYENV|PYTEST|COVERAGE|SSL)_\w+|\w+_CA_BUNDLE"
)
"""Names of the variables that tests see of the user's. The corpus is a choice of the tests' own."""


def enter() -> Path:
    """Replace the environment of this process and its children. Returns the folder of the session."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    folder = Path(tempfile.mkdtemp(prefix="train_bench_tests_"))
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment(before, folder))
    os.environ[programs.PATH] = os.environ["PATH"]
    os.environ["PATH"] = programs.lay_out(folder / "programs", os.environ["PATH"])
    (folder / "work").mkdir()
    return folder


def environment(before: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables of a session in `folder` that was started with those of `before`."""
    home = before.get("HOME") or Path.home()
    cache = Path(before.get("XDG_CACHE_HOME") or Path(home, ".cache"))
    return {
        **{name: value for name, value in before.items() if KEPT.fullmatch(name)},
        **homes(folder),
        FOLDER: str(folder),
        **({REQUIRE_ALL: "1"} if before.get("CI") else {}),
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "TZ": "UTC",
        "PYTHONPATH": str(ROOT),
        # There are more threads than processors, so those that wait have to give way.
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        # What takes long to compile: by `make deepspeed`, and for all processes of all sessions.
        "TORCH_EXTENSIONS_DIR": before.get("TORCH_EXTENSIONS_DIR", str(cache / "torch_extensions")),
        "NUMBA_CACHE_DIR": str(compiled(cache, folder)),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        # Checkouts of another user, as in containers, are git repositories, too.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }


def compiled(cache: Path, folder: Path) -> Path:
    """Where numba keeps machine code: in the user's cache, named after the sources, else for this session alone.
    It changes how long tests take, and nothing else."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "references" / "minigo").glob("*.py")):
        digest.update(path.read_bytes())
    kept = cache / "train_bench" / "compiled" / f"tests-{digest.hexdigest()[:16]}"
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError:
        return folder / "numba"
    return kept if os.access(kept, os.W_OK) else folder / "numba"


def homes(folder: Path) -> dict[str, str]:
    """The variables that say where a user's files are, below `folder`."""
    kinds = {"XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data"}
    kinds |= {"XDG_STATE_HOME": "state", "HOME": "home"}
    return {variable: str(folder / name) for variable, name in kinds.items()}


def leave(folder: Path) -> None:
    """Remove the folder of the session."""
    os.chdir(ROOT)
    shutil.rmtree(folder, ignore_errors=True)
