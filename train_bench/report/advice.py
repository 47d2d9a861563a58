"""The table of batch sizes for a terminal. Takes the plain data of `forecast.advisor.Advice`, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

WHERE = {
    "within": "",
    "above": "extrapolated: above the largest point",
    "below": "extrapolated: below the smallest point",
}


def show(advice: Mapping[str, Any], unit: str, console: Console) -> None:
    """One row for each batch size and number of ranks, then the best."""
    law = advice["law"]
    errors = [abs(error) for error in law["leave_one_out"]]
    worst = f", worst error of a point by the law of the others {100 * max(errors):.0f} %" if errors else ""
    _say(console, f"law: E(B) = {law['e_min']:.4g} (1 + B / {law['b_crit']:.4g}) {_unit(law, unit)}{worst}")
    console.print(_table(advice, unit))
    _say(console, f"fastest: {_named(advice['fastest'])}")
    if advice["cheapest"] is not None:
        _say(console, f"cheapest: {_named(advice['cheapest'])}")
    if advice["faster_beyond"] is not None:
        _say(
            console,
            f"extrapolated, faster still: {_named(advice['faster_beyond'])}; above the largest point no result passes",
        )


def _table(advice: Mapping[str, Any], unit: str) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    priced = advice["cheapest"] is not None
    headings = [
        "ranks",
        "batch size",
        f"{unit}s",
        "point",
        "samples",
        "steps",
        "evaluations",
        "minutes",
        "+-",
    ]
    for heading in (*headings, *["cost"] * priced, ""):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    best = [advice["fastest"]], [advice["cheapest"]]
    for row in advice["rows"]:
        names = [name for name, of in zip(("fastest", "cheapest"), best, strict=True) if row in of]
        table.add_row(
            str(row["ranks"]),
            str(row["batch_size"]),
            f"{row['training']:.4g}",
            "" if row["point"] is None else f"{row['point']:.4g}",
            f"{row['samples']:.4g}",
            f"{row['steps']:.0f}",
            str(row["evaluations"]),
            f"{row['minutes']:.4g}",
            f"{100 * row['log_error']:.0f} %",
            *([f"{row['cost']:.4g}"] if priced else []),
            ", ".join(filter(None, (*names, WHERE[row["where"]]))),
        )
    return table


def _unit(law: Mapping[str, Any], unit: str) -> str:
    return "samples" if law["in_steps"] else f"{unit}s"


def _named(row: Mapping[str, Any]) -> str:
    cost = "" if row["cost"] is None else f", cost {row['cost']:.4g}"
    return f"batch size {row['batch_size']} on {row['ranks']} ranks, {row['minutes']:.4g} minutes{cost}"


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
