"""The history of scores as text. Takes the object of `history --json`, computes nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console

from train_bench.core.digits import minutes_in_digits
from train_bench.core.escape import plain
from train_bench.report.console import print_line
from train_bench.report.results_table import FORMULA
from train_bench.report.score_table import reasons_in_words, validity

LINES, POINTS = 40, 20
"""Lines, and last points of each, on a terminal; the other formats have all."""

COLUMNS = (
    *(
        "line",
        "joined",
        "kind",
        "benchmark",
        "variant",
        "ruleset",
        "batch_size",
        "submitter",
        "division",
        "system",
    ),
    *("family", "accelerators", "launcher", "ranks", "nodes", "device", "precision", "began", "revision"),
    *(
        "environment",
        "host",
        "runs",
        "runs_required",
        "failed",
        "score_minutes",
        "low_minutes",
        "high_minutes",
        "joules",
        "joules_above_idle",
        "valid",
        "state",
    ),
    *("reasons", "copy_of", "sweep", "job", "folder"),
)


def as_csv(history: Mapping[str, Any]) -> str:
    """One row for each point. A point may differ from its line in values that a line need not share."""
    rows = []
    for line in history["lines"]:
        for point in line["points"]:
            row = {**line, **point, "reasons": " ".join(point["reasons"])}
            rows.append([row[name] for name in COLUMNS])
    return rows_as_csv(COLUMNS, rows)


def rows_as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Comma-separated values with one line of headings."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (columns, *rows):
        writer.writerow([_cell(value) if isinstance(value, (str, bool)) else value for value in row])
    return text.getvalue()


def show(history: Mapping[str, Any], console: Console) -> None:
    """The last points of the first lines, for a terminal."""
    lines = history["lines"]
    if not lines:
        _say(console, [f"{history['store']} has no result for these filters."])
        return
    for line in lines[:LINES]:
        _say(console, [title(line), *_points(line["points"]), ""])
    if len(lines) > LINES:
        _say(console, [f"{len(lines) - LINES} more lines; give filters, or --csv or --json for all."])


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], console: Console) -> None:
    """Result of a query, in columns."""
    _say(console, _aligned([list(columns), *([_word(value) for value in row] for row in rows)]))


def title(line: Mapping[str, Any]) -> str:
    """Properties that the results of a line share, as far as they are known."""
    batch = f"batch size {line['batch_size']}" if line["batch_size"] else None
    parts = (line["variant"] or line["benchmark"], line["ruleset"], batch, system(line))
    return ", ".join(filter(None, parts))


def system(line: Mapping[str, Any]) -> str:
    """Submitter, system and its use."""
    ranks = f"{line['ranks']} rank(s)" if line["ranks"] else None
    size = f"{line['accelerators']} x {line['family']}" if line["family"] else line["system"]
    parts = (line["submitter"], size, line["launcher"], ranks, line["device"], line["precision"])
    return ", ".join(filter(None, parts))


def _points(points: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [["began (UTC)", "round", "revision", "runs", "minutes", "95 % confidence interval", ""]]
    if all(point["ruleset"] == points[0]["ruleset"] for point in points):
        rows[0][1] = ""
    for point in points[-POINTS:]:
        low, high = point["low_minutes"], point["high_minutes"]
        revision, plus, changes = (point["revision"] or "").partition("+")
        rows.append(
            [
                (point["began"] or "").removesuffix("+00:00").replace("T", " "),
                point["ruleset"] if rows[0][1] else "",
                f"{revision[:8]}{plus}{changes}",
                f"{point['runs']}/{point['runs_required']}",
                "-" if point["score_minutes"] is None else minutes_in_digits(point["score_minutes"]),
                ""
                if low is None or high is None
                else f"{minutes_in_digits(low)} to {minutes_in_digits(high)}",
                _remark(point),
            ]
        )
    earlier = [f"  {len(points) - POINTS} earlier results (--csv has all)"] if len(points) > POINTS else []
    return [*earlier, *(f"  {row}" for row in _aligned(rows))]


def _remark(point: Mapping[str, Any]) -> str:
    remarks = [] if point["valid"] else [f"{validity(point)}: {reasons_in_words(point).removesuffix('.')}"]
    if point["failed"]:
        remarks.append(f"{point['failed']} run(s) failed; the interval is of the others")
    if point["copy_of"] is not None:
        remarks.append(f"COPY of a log of {point['copy_of']}")
    if point["other_versions"]:
        remarks.append(", ".join(point["other_versions"]))
    return "; ".join(remarks)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width] for row in cells]
    return ["  ".join(row).rstrip() for row in shown]


def _say(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        print_line(console, line)


def _word(value: Any) -> str:
    return "" if value is None else str(value)


def _cell(value: str | bool) -> str:
    """Cell text that no spreadsheet evaluates as a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if value.startswith(FORMULA) else value
