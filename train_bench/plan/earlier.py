"""Earlier campaigns like a planned one: how long a run takes is not computed, it is looked up."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench import papers
from train_bench.errors import LogError

LOOKED_AT = 100
"""Folders beside the planned one, by name from the last: their names begin with the time."""

ALIKE = ("variant", "launcher", "world_size", "changes")
SHARED_ALIKE = ("device", "precision", "threads_per_rank", "nodes")


def time_of_a_run(plan: Mapping[str, Any], folder: Path) -> str | None:
    """How long the runs that reached their target took (their median) in the latest campaign like `plan` among the
    neighbours of `folder`, in words; None where there is none."""
    try:
        neighbours = sorted(folder.parent.glob("*/score.json"), reverse=True)[:LOOKED_AT]
    except OSError:
        return None
    for path in neighbours:
        score, other = _read(path), _read(path.with_name("plan.json"))
        if _kind(other) == _kind(plan):
            runs = score.get("runs")
            listed = [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
            found = [run.get("minutes") for run in listed if run.get("converged") is True]
            timed = [one for one in found if isinstance(one, (int, float)) and one > 0]
            if timed:
                minutes = statistics.median(timed)
                about = f"{minutes:.3g} min" if minutes >= 2 else f"{minutes * 60:.3g} s"
                return f"about {about} a run, as in {path.parent}"
    return None


def _kind(plan: Mapping[str, Any]) -> list[Any]:
    shared = plan.get("shared")
    of_all = shared if isinstance(shared, dict) else {}
    return [*(plan.get(name) for name in ALIKE), *(of_all.get(name) for name in SHARED_ALIKE)]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = papers.read_json(path)
    except LogError:
        return {}
    return found if isinstance(found, dict) else {}
