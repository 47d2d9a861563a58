"""Software provenance: our source code, and its dependencies."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from train_bench.core import files, git
from train_bench.core.plugins import PACKAGE
from train_bench.core.secret_filter import without_secrets

PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn", "mlperf-logging", "deepspeed", "horovod")


LARGEST_CODE_BYTES = 16 * 2**20
"""More than any file of code or configuration."""

VARIABLES = re.compile(
    r"(OMP|MKL|OPENBLAS|GOMP|KMP|NCCL|GLOO|TORCH|PYTORCH|ATEN|CUDA|CUBLAS|CUDNN|NVIDIA|ONEDNN|DNNL|HOROVOD|DS|MALLOC"
    r"|GLIBC|LD)_\w+|PYTHON(PATH|HOME|STARTUP|HASHSEED|OPTIMIZE|MALLOC|INSPECT|BREAKPOINT|SAFEPATH"
    r"|PYCACHEPREFIX|USERBASE)"
)
"""Names of environment variables by which arithmetic and exchange can be tuned, and code can be changed."""


def install_command(extra: str) -> str:
    """Command that installs an extra of train_bench from where this one came: the checkout, the file of the wheel, or
    else the index that has it."""
    checkout = PACKAGE.parent
    if (checkout / "pyproject.toml").is_file():
        source = "." if checkout == Path.cwd() else str(checkout)
    else:
        source = _installed_from() or "train-bench"
    return f"pip install {_quoted(f'{source}[{extra}]')}"


def _installed_from() -> str | None:
    """Path that pip installed train_bench from; None if it came from an index, or the file is gone."""
    try:
        recorded = importlib.metadata.distribution("train-bench").read_text("direct_url.json") or "{}"
    except importlib.metadata.PackageNotFoundError:
        return None
    url = urlsplit(json.loads(recorded).get("url", ""))
    path = unquote(url.path)
    return path if url.scheme == "file" and Path(path).exists() else None


def _quoted(requirement: str) -> str:
    """A requirement in quotes, which shells need for its brackets."""
    return shlex.quote(requirement) if "'" in requirement else f"'{requirement}'"


def describe() -> dict[str, Any]:
    """Current software: `sources` (digest), `python` and `packages` (versions)."""
    return {"sources": digest_of_sources(), "python": platform.python_version(), "packages": versions()}


def digest_of_sources() -> str:
    """Digest of the code on this host, the same in a checkout and in an installation; a revision would not distinguish
    two changed checkouts."""
    return _digest(PACKAGE, (".py",))


def digest_of_sources_at(revision: str) -> str | None:
    """Digest of the code at a revision of this checkout; None where it is unknown here."""
    held = git.files_at(PACKAGE.parent, revision, PACKAGE.name, ".py")
    if not held:
        return None
    digest = hashlib.sha256()
    for path in sorted(map(Path, held)):
        digest.update(f"{path}\n".encode())
        digest.update(held[str(path)])
    return digest.hexdigest()[:12]


def digest_of_reference(folder: Path) -> str:
    """Digest of the code and the configurations of a reference that did not come with train_bench."""
    return _digest(folder, (".py", ".yaml"))


def _digest(folder: Path, suffixes: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in _files_of_code(folder) if path.suffix in suffixes):
        digest.update(f"{path.relative_to(folder)}\n".encode())
        digest.update(_code(path))
    return digest.hexdigest()[:12]


def _files_of_code(top: Path) -> Iterator[Path]:
    """Files below a folder, without those behind links to folders: these are data, however large, or lead back. Only
    those that a checkout of train_bench itself has at its top are parts of it."""
    tops = [top]
    if top == PACKAGE:
        tops += [path for path in top.iterdir() if path.is_symlink() and path.is_dir()]
    for one in tops:
        for at, _, names in os.walk(one):
            yield from (Path(at, name) for name in names)


def _code(path: Path) -> bytes:
    """Content of a file of code; of one that is larger than any code, or no file, its size."""
    try:
        return files.read_bytes(path, largest=LARGEST_CODE_BYTES)
    except OSError:
        return f"{path.stat().st_size if path.exists() else 0} bytes".encode()


def versions() -> dict[str, str]:
    """Versions of the relevant installed packages."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def digest_of_packages() -> str:
    """Digest of every installed package: its name, its version, and the digests of its files as they were installed.
    Builds of one version differ in it."""
    held = []
    for one in importlib.metadata.distributions():
        record = hashlib.sha256((one.read_text("RECORD") or "").encode()).hexdigest()
        held.append(f"{one.name} {one.version} {record}")
    return hashlib.sha256("\n".join(sorted(held)).encode()).hexdigest()[:12]


def variables() -> dict[str, str]:
    """The relevant environment variables of this process, without secrets."""
    return without_secrets({name: value for name, value in os.environ.items() if VARIABLES.fullmatch(name)})


def distributions() -> dict[str, tuple[str, str | None]]:
    """Version of every dependency of train_bench and its references by its name, and the sha256 of its RECORD's file
    digests; None without a RECORD. Files that are made during installation do not count."""
    installed = {_normal(one.metadata["Name"]): one for one in importlib.metadata.distributions()}
    ours = [*map(_normal, PACKAGES), "train-bench[references]"]
    todo, seen = ours if "train-bench" in installed else [*installed], set[str]()
    while todo:
        wanted = todo.pop()
        if wanted not in seen:
            seen.add(wanted)
            name, _, extras = wanted.partition("[")
            todo += _required(installed[name], extras) if name in installed else ()
    found = sorted({wanted.partition("[")[0] for wanted in seen} & installed.keys())
    return {name: (installed[name].version, _record(installed[name])) for name in found}


def _required(one: importlib.metadata.Distribution, extras: str) -> Iterator[str]:
    """Requirements of a distribution with these extras, as `name` or `name[extra,extra]`."""
    for line in one.requires or ():
        requirement, _, marker = line.partition(";")
        of_extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        match = re.match(r"([\w.-]+)\s*(\[[^\]]*)?", requirement)
        if match and (of_extra is None or of_extra[1] in re.split(r"[,\s\]]+", extras)):
            yield _normal(match[1]) + (match[2] or "")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _record(one: importlib.metadata.Distribution) -> str | None:
    lines = (one.read_text("RECORD") or "").splitlines()
    kept = sorted(line for line in lines if "sha256=" in line and not _is_made(line))
    return hashlib.sha256("\n".join(kept).encode()).hexdigest() if kept else None


def _is_made(line: str) -> bool:
    path = line.partition(",")[0].strip('"')
    return path.endswith((".pyc", "/INSTALLER", "/REQUESTED", "/direct_url.json")) or path.startswith("..")
