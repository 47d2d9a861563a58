"""Expected time of a run, from earlier campaigns like a planned one or of its benchmark: looked up, not computed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from train_bench.core import files

LOOKED_AT = 100
"""Folders next to the planned one, by name from the last: their names begin with the time."""

LONGEST_CHECKPOINT = 86400.0
"""Seconds; longer ones are believed of no score."""

PLAN_FIELDS = ("variant", "launcher", "world_size", "changes")
SHARED_FIELDS = ("device", "precision", "threads_per_rank", "nodes")


def time_of_a_run(plan: Mapping[str, Any], folder: Path) -> str | None:
    """Median time of the runs that reached their target in the latest campaign like `plan` in the same folder as
    `folder`, in words; None without one."""
    for path, score in _like(plan, folder):
        about = _time(score)
        if about:
            return f"about {about} a run, as in {path.parent}"
    return None


def checkpoint_seconds(plan: Mapping[str, Any], folder: Path) -> float | None:
    """Mean time of a checkpoint in the latest such campaign that wrote any; None without one."""
    for _, score in _like(plan, folder):
        restarts = score.get("restarts")
        mean = restarts.get("checkpoint") if isinstance(restarts, dict) else None
        if isinstance(mean, (int, float)) and 0 < mean < LONGEST_CHECKPOINT:
            return float(mean)
    return None


def times_of_runs(folder: Path) -> dict[str, str]:
    """The same in short by the name of the benchmark, on any machine: the latest campaign of each in `folder` that
    trained the benchmark as it is defined."""
    times: dict[str, str] = {}
    for path in _scores(folder):
        plan = files.read_object(path.with_name("plan.json"))
        variant = plan.get("variant")
        if isinstance(variant, str) and variant not in times and plan.get("changes") == []:
            about = _time(files.read_object(path))
            if about:
                times[variant] = about
    return times


def _like(plan: Mapping[str, Any], folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Scores of the campaigns like `plan` in the same folder as `folder`, the last first."""
    wanted = _kind(plan)
    for path in _scores(folder.parent):
        if _kind(files.read_object(path.with_name("plan.json"))) == wanted:
            yield path, files.read_object(path)


def _scores(folder: Path) -> list[Path]:
    """Scores of the campaigns in a folder, the last first."""
    try:
        return sorted(folder.glob("*/score.json"), reverse=True)[:LOOKED_AT]
    except OSError:
        return []


def _time(score: Mapping[str, Any]) -> str | None:
    """The median of the runs that reached their target, with its unit; None where none did."""
    runs = score.get("runs")
    listed = [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
    listed_minutes = [run.get("minutes") for run in listed if run.get("converged") is True]
    timed = [one for one in listed_minutes if isinstance(one, (int, float)) and one > 0]
    if not timed:
        return None
    minutes = statistics.median(timed)
    return f"{minutes:.3g} min" if minutes >= 2 else f"{minutes * 60:.3g} s"


def _kind(plan: Mapping[str, Any]) -> list[Any]:
    shared = plan.get("shared")
    of_all = shared if isinstance(shared, dict) else {}
    return [*(plan.get(name) for name in PLAN_FIELDS), *(of_all.get(name) for name in SHARED_FIELDS)]
