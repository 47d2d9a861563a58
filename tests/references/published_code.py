"""The published references' own code, imported from clones of their repositories to run beside ours."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from scipy import stats

from tests import needs

V1_1 = "d0a86d67e41186835cf3f484f7e3ef00d02b820a"
"""mlcommons/training of 2021-08-12, the last commit before round 1.1's results."""

DLRM = "6d75c84d834380a365e2f03d4838bee464157516"
"""facebookresearch/dlrm as the submodule of `V1_1` has it."""

NEWEST = "aa344c7f"
"""mlcommons/training of 2026-07-27."""


def export(repository: str, commit: str, folder: str, to: Path) -> Path:
    """Write a folder of a repository at a commit below `to`; its path there."""
    archive = ["git", "-C", str(needs.PUBLISHED / repository), "archive", commit, "--", folder]
    packed = subprocess.run(archive, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(to, filter="data")
    return to / folder


@contextmanager
def importing(folder: Path, *absent: str) -> Iterator[Any]:
    """A function that imports a module of `folder` by name; `absent` modules are replaced by ones that do nothing.
    Afterwards no module of the folder stays imported."""
    before = dict(sys.modules)
    sys.modules.update({name: MagicMock(spec_set=None) for name in absent})
    sys.path.insert(0, str(folder))
    try:
        yield _import
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name in absent or _is_below(sys.modules[name], folder)]:
            del sys.modules[name]
        sys.modules.update({name: before[name] for name in absent if name in before})


def counts_agree(ours: list[Any], theirs: list[Any]) -> bool:
    """True if two lists of draws are of one distribution, by the chi-squared test at 0.001."""
    places = sorted({*ours, *theirs})
    table = np.array([[draws.count(place) for place in places] for draws in (ours, theirs)])
    return bool(stats.chi2_contingency(table).pvalue > 0.001)


def distributions_agree(ours: list[float], theirs: list[float]) -> bool:
    """True if two lists of draws are of one distribution, by the test of Kolmogorov and Smirnov at 0.001."""
    return bool(stats.ks_2samp(np.round(ours, 2), np.round(theirs, 2)).pvalue > 0.001)


def _import(name: str) -> ModuleType:
    return importlib.import_module(name)


def _is_below(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    places = [file] if file else list(getattr(module, "__path__", []))
    return any(Path(place).is_relative_to(folder) for place in places if isinstance(place, str))
