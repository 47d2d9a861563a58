"""What runs: our source code, and the packages that it stands on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("train_bench", "references", "launchers")
PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn", "mlperf-logging", "deepspeed", "horovod")


def found() -> dict[str, Any]:
    """What would run now: `sources` (digest), `python` and `packages` (versions)."""
    return {"sources": digest_of_sources(), "python": platform.python_version(), "packages": versions()}


def digest_of_sources() -> str:
    """Of the code as it lies on this host; a revision would not tell one changed checkout from another."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\n".encode())
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
