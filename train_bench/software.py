"""What runs: our source code, and the packages that it stands on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from train_bench.search_path import PACKAGE

PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn", "mlperf-logging", "deepspeed", "horovod")


def describe() -> dict[str, Any]:
    """What would run now: `sources` (digest), `python` and `packages` (versions)."""
    return {"sources": digest_of_sources(), "python": platform.python_version(), "packages": versions()}


def digest_of_sources() -> str:
    """Of the code as it lies on this host, the same in a checkout and where it is installed; a revision would not
    tell one changed checkout from another."""
    return _digest(PACKAGE, (".py",))


def digest_of_reference(folder: Path) -> str:
    """Of the code and the configurations of a reference that did not come with train_bench."""
    return _digest(folder, (".py", ".yaml"))


def _digest(folder: Path, suffixes: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    paths = (Path(at, name) for at, _, names in os.walk(folder, followlinks=True) for name in names)
    for path in sorted(path for path in paths if path.suffix in suffixes):
        digest.update(f"{path.relative_to(folder)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def versions() -> dict[str, str]:
    """Versions of the packages that matter, of those that are installed."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
