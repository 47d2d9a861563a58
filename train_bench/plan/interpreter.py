"""`python=`: another interpreter for the ranks, with an environment of its own, and what it finds there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench import __version__
from train_bench.core import files, software
from train_bench.errors import LaunchError, RequestError
from train_bench.launcher import Launch
from train_bench.plan.process import answer

PROBE = """\
import importlib.util, json, sys
found = {"version": None, "software": None}
found["missing"] = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
if importlib.util.find_spec("train_bench") is not None:
    import train_bench
    found["version"] = getattr(train_bench, "__version__", "unknown")
    try:
        from train_bench.core import software
        found["software"] = software.describe()
    except (ImportError, AttributeError):
        pass
print("\\n" + json.dumps(found))
"""
"""Program that prints what an interpreter finds, as JSON on the last line."""

LAUNCHERS = ("inline", "torchrun")
"""Launchers that start ranks by the interpreter of their command."""


def resolve(typed: str, cwd: Path) -> str:
    """Path of an interpreter as typed, absolute. Links stay: that of a virtual environment selects it. Raises
    `RequestError` if it cannot be executed."""
    path = os.path.abspath(cwd / files.own_path(typed)) if "/" in typed else shutil.which(typed)  # noqa: PTH100
    if path is None or not Path(path).is_file() or not os.access(path, os.X_OK):
        raise RequestError(
            f"python={typed} is not a program on this host; give the interpreter of an environment, such as "
            "python=/venv/bin/python. Nothing was started."
        )
    return path


def describe(python: str) -> dict[str, Any]:
    """Software that ranks of this interpreter have, as `software.describe`. Raises `RequestError` if they cannot
    work with this train_bench."""
    found = _probe(python, ())
    if found["version"] is None:
        raise RequestError(
            f"python={python} has no train_bench; install this one there: {python} -m "
            f"{software.install_command('references')}. Nothing was started."
        )
    described: Mapping[str, Any] = found["software"] or {}
    here = software.digest_of_sources()
    if described.get("sources") != here:
        raise RequestError(
            f"python={python} has train_bench {found['version']} (source {described.get('sources')}), and this is "
            f"{__version__} (source {here}); install the same one there: {python} -m "
            f"{software.install_command('references')}. Nothing was started."
        )
    return dict(described)


def missing(python: str, packages: Sequence[str]) -> list[str]:
    """Packages that this interpreter does not find."""
    return list(map(str, _probe(python, packages)["missing"]))


def _probe(python: str, packages: Sequence[str]) -> dict[str, Any]:
    try:
        printed = answer(Launch(argv=(python, "-c", PROBE, *packages)))
        found = json.loads(printed.strip().splitlines()[-1])
        if not {"version", "software", "missing"} <= found.keys():
            raise ValueError("other keys")
    except (LaunchError, ValueError, IndexError, AttributeError) as error:
        why = str(error).rstrip(".") if isinstance(error, LaunchError) else "it does not run Python programs"
        raise RequestError(
            f"python={python} is not a usable interpreter: {why[:200]}. Give that of an environment, such as "
            "python=/venv/bin/python. Nothing was started."
        ) from error
    return dict(found)
