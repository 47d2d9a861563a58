"""In which order tests run."""

from __future__ import annotations

import pytest

LONGEST_FIRST = ("hosts", "slurm", "launchers", "own_trainer", "equivalence", "commands", "references")
"""Folders whose files take longest, so that with several processes none is left alone with one of them at the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files of the same folder stay in their order."""
    tests = config.rootpath / "tests"

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(tests).parts[0] if item.path.is_relative_to(tests) else ""
        return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=place)
