"""Benchmarks and launchers to choose from, for a terminal. Names are never cut; in a pipe no line is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

DURATION = re.compile(r": ([a-z ]+) on two CPU cores")
"""Format of a run's duration in a benchmark's file."""


def show(content: Mapping[str, Any], console: Console) -> None:
    """`benchmarks` by the reference that they belong to, then `launchers`. The duration of a run is that of the last
    campaign in `results/`, else the one that the benchmark's file states for two processor cores. A terminal cuts the
    end of a line, which nobody has to type."""
    benchmarks = sorted(content["benchmarks"], key=lambda one: (one["reference"], _scale(one), one["name"]))
    rows = [
        ("benchmark=", "", "scale", "time of a run", "data", "point=", "about"),
        *map(_benchmark, benchmarks),
    ]
    _say(console, rows)
    console.print()
    _say(console, [("launcher=", "", "about"), *map(_launcher, content["launchers"])])


def _benchmark(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        one["name"],
        _default(one),
        _scale(one),
        _time(one),
        "ready" if one["has_data"] else "-",
        ",".join(map(str, one["points"])),
        DURATION.sub("", one["about"]),
    )


def _time(one: Mapping[str, Any]) -> str:
    if one["time_of_a_run"]:
        return f"{one['time_of_a_run']}, measured in results/"
    said = DURATION.search(one["about"])
    return f"{said.group(1)} on two cores" if said else ""


def _launcher(one: Mapping[str, Any]) -> tuple[str, ...]:
    return one["name"], _default(one), one["about"]


def _say(console: Console, rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        console.print(line, highlight=False, markup=False, no_wrap=True, overflow="ellipsis")


def _default(one: Mapping[str, Any]) -> str:
    return "default" if one["default"] else ""


def _scale(one: Mapping[str, Any]) -> str:
    """Full scale, a mini task, one that is sized for a GPU, or a small one on real data."""
    if not one["ruleset"].startswith("mini"):
        return "full"
    return next((scale for scale in ("mini", "midi") if f"_{scale}" in one["name"]), "small")
