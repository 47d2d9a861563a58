"""Equivalence test of two implementations, for a terminal. Takes the object of `equivalent --json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from train_bench.report.console import print_line

COLOURS = {"equal": "green", "different": "bold red", "cannot tell": "yellow", "not compared": "dim"}


def show(content: Mapping[str, Any], console: Console) -> None:
    """A line per check, then the conclusion."""
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    for heading in ("rung", "verdict", "compared", "first difference", "apart", "allowed", ""):
        table.add_column(heading, justify="right" if heading in ("compared", "apart", "allowed") else "left")
    for rung in content["rungs"]:
        verdict = rung["verdict"]
        table.add_row(
            rung["name"],
            Text(verdict, style=COLOURS[verdict]),
            str(rung["compared"] or "-"),
            Text(rung["where"] or ""),
            _number(rung["error"]),
            _number(rung["tolerance"]),
            Text(rung["note"]),
        )
    console.print(table)
    print_line(console, conclusion(content))


def conclusion(content: Mapping[str, Any]) -> str:
    """One sentence or two."""
    by = {
        verdict: [rung["name"] for rung in content["rungs"] if rung["verdict"] == verdict]
        for verdict in COLOURS
    }
    left = f" Not compared: {', '.join(by['not compared'])}." if by["not compared"] else ""
    if content["verdict"] == "different":
        first = next(rung for rung in content["rungs"] if rung["verdict"] == "different")
        return f"DIFFERENT: the first difference is in {first['name']}: {first['where']}.{left}"
    if content["verdict"] == "cannot tell":
        return f"UNDECIDED: {', '.join(by['cannot tell']) or 'nothing could be compared'}.{left}"
    if content["rungs"][0]["where"]:  # of campaigns, what was measured
        return f"EQUAL: {content['rungs'][0]['where']}.{left}"
    over = f", over {content['steps']} steps" if content["steps"] else ""
    return f"EQUAL within the measured rounding{over}.{left}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
