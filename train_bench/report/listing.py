"""Benchmarks and launchers to choose from. A name is never cut; the description of it is, where the line is full."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from train_bench.core.digits import minutes_in_digits
from train_bench.report.console import WIDEST_TABLE, coloured, print_line

DURATION = re.compile(r": ([a-z ]+) on two CPU cores")
"""Format of a run's duration in a benchmark's file."""

SAME_TASK = re.compile(r"^The same task (on |with )?")

SCALES = ("mini", "small", "midi", "full")
"""Scales of benchmarks, from what runs anywhere to full scale."""

LEAST_ABOUT = 16
ALL_POINTS = 110
"""Least columns of a description, and of a terminal that has room for every point."""


def show(content: Mapping[str, Any], console: Console) -> None:
    """`benchmarks` by their scale, minis first, then `launchers`. The duration of a run is that of the last campaign in
    `results/`, else the one that the benchmark's file states for two processor cores."""
    tables = []
    for heading in SCALES:
        chosen = sorted((one for one in content["benchmarks"] if scale(one) == heading), key=_place)
        headings = (heading, "a run", "data", "about", "point=")
        tables.append([headings, *(_benchmark(one, console.width) for one in chosen)])
    launchers = [(one["name"], _default(one) + one["about"]) for one in content["launchers"]]
    tables.append([("launcher=", "about"), *launchers])
    for number, rows in enumerate(rows for rows in tables if len(rows) > 1):
        if number:
            console.print()
        _say(console, rows)


def show_campaigns(content: Mapping[str, Any], console: Console) -> None:
    """Campaigns of a working folder by number."""
    if not content["campaigns"]:
        print_line(
            console, "No campaign is below this folder; `train-bench run benchmark=NAME` makes the first."
        )
        _show_served(content["served"], console)
        return
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("campaign", overflow="fold", min_width=20)
    for heading in ("date", "runs", "score, min", "verdict"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "score, min" else "left")
    for one in content["campaigns"]:
        score = "-" if one["score_minutes"] is None else minutes_in_digits(one["score_minutes"])
        runs = f"{one['finished']}/{one['runs']}"
        cells = (str(one["number"]), f"{one['folder']}\n{one['benchmark']}", one["created"][:10], runs)
        table.add_row(*map(Text, (*cells, score)), coloured(one["state"]) if one["state"] else "-")
    console.print(table)
    print_line(
        console,
        "Scores and verdicts are as score.json says, of the logs that are there; `train-bench judge N` judges again.",
    )
    _show_served(content["served"], console)


def _show_served(folders: Sequence[str], console: Console) -> None:
    """Results of `train-bench serve`, whose verdicts no file keeps."""
    for folder in folders:
        print_line(
            console, f"Served weights: {folder}, not judged; `train-bench judge {folder}` judges them."
        )


def in_its_own_words(about: str) -> str:
    """A description without the reference to the benchmark that the task is also of."""
    return SAME_TASK.sub("", about)


def scale(one: Mapping[str, Any]) -> str:
    """Scale of a benchmark: full, a mini task, one that is sized for a GPU, or a small one on real data."""
    if not one["ruleset"].startswith("mini"):
        return "full"
    return next((scale for scale in ("mini", "midi") if f"_{scale}" in one["name"]), "small")


def _place(one: Mapping[str, Any]) -> tuple[str, str]:
    return one["reference"], one["name"]


def _benchmark(one: Mapping[str, Any], width: int) -> tuple[str, ...]:
    about = DURATION.sub("", in_its_own_words(one["about"])).removesuffix(".")
    points = list(map(str, one["points"]))
    shown = ",".join(points) if width >= ALL_POINTS or len(points) < 3 else f"{points[0]}..{points[-1]}"
    return one["name"], _time(one), _data(one), _default(one) + about, shown


def _data(one: Mapping[str, Any]) -> str:
    return "ready" if one["has_data"] else "-"


def _time(one: Mapping[str, Any]) -> str:
    said = DURATION.search(one["about"])
    return one["time_of_a_run"] or (said.group(1) if said else "")


def _default(one: Mapping[str, Any]) -> str:
    return "(default) " if one["default"] else ""


def _say(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Rows in columns, without those that are empty; that of the descriptions has the width that the others leave."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    about = [column[0] for column in columns].index("about")
    free = min(console.width, WIDEST_TABLE) - sum(widths) - 2 * (len(widths) - 1) + widths[about]
    widths[about] = max(LEAST_ABOUT, min(widths[about], free))
    for row in zip(*columns, strict=True):
        cells = (_cell(cell, width) for cell, width in zip(row, widths, strict=True))
        console.print("  ".join(cells).rstrip(), highlight=False, markup=False, no_wrap=True)


def _cell(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[: width - 1].rstrip()}…"
