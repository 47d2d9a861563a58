"""Differences between a replay and its export file, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from train_bench.core.escape import plain

ORDER = ("differs and matters", "differs", "same")


def show(rows: Sequence[tuple[str, str, str, str]], console: Console) -> None:
    """Rows of property, then, now and verdict; those that matter first."""
    table = Table("what", "then", "now", "verdict")
    for what, then, now, verdict in sorted(rows, key=lambda row: ORDER.index(row[3])):
        table.add_row(*map(plain, (what, then, "" if verdict == "same" else now, verdict)))
    console.print(table)
