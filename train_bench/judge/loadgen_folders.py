"""Folders of LoadGen tests, found without reading them."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

DETAIL = "mlperf_log_detail.txt"
"""Log that every test has."""

RESULT = "serving.json"
"""File that joins the tests of served weights with their campaign."""

PAGE = "serving.html"
"""Page of a result of `train-bench serve`."""

TRAINING_LOG = "training.log"
"""Copy of the log of the run whose weights were served, in its folder `run_N`."""

LEFT_BY_A_TEST = (
    DETAIL,
    "mlperf_log_summary.txt",
    "mlperf_log_trace.json",
    "mlperf_log_accuracy.json",
)
"""Files that every test of `train-bench serve` leaves in its folder."""

LEFT_BY_A_RUN = (TRAINING_LOG, "verified_training.json")
"""Files that every run of a result leaves in its folder `run_N`."""

MOST_FOLDERS = 10_000
"""Folders that are looked at to say whether there are tests."""

ROUNDS = ("inference-", "mini-serving-")
"""Beginnings of the names of rounds of serving."""


def has_tests(root: Path) -> bool:
    """True if a folder has a test among its first `MOST_FOLDERS` folders; links are not followed."""
    walked = itertools.islice(os.walk(root), MOST_FOLDERS)
    return any(DETAIL in names for _, _, names in walked)


def find_served(root: Path) -> tuple[Path, ...]:
    """Results of `train-bench serve` in a tree, and for tests beyond these the folder next to `root` that holds them,
    or `root` where it holds nothing else; links are not followed."""
    results: list[Path] = []
    others: dict[Path, None] = {}
    for folder, below, names in os.walk(root):
        here = Path(folder)
        below[:] = [name for name in below if not name.startswith(".")]
        if RESULT in names:
            results.append(here)
            below.clear()
        elif DETAIL in names:
            inside = here.relative_to(root).parts
            others[root / inside[0] if inside else root] = None
    return tuple(sorted({*results, *others}))


def find_tests(root: Path) -> tuple[Path, ...]:
    """All folders with a detail log in a tree, sorted."""
    return tuple(sorted(path.parent for path in root.rglob(DETAIL) if path.is_file()))
