"""The results table of a round: one row per entry. Takes the objects of `score --json`, computes nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table

HEADINGS = (
    *("submitter", "system", "benchmark", "ruleset", "division", "runs", "olympic_minutes", "rcp"),
    *("rcp_factor", "score_minutes", "normalised", "valid", "by_the_letter"),
)
ON_A_TERMINAL = {
    "ruleset": "round",
    "score_minutes": "minutes",
    "normalised": "normalised",
    "rcp": "RCP",
    "valid": "",
    "by_the_letter": "letter",
}
NUMBERS = {"runs", "olympic_minutes", "rcp_factor", "score_minutes", "normalised"}


def rows(results: Mapping[str, Any]) -> list[list[str]]:
    """One row per entry, in the order of `HEADINGS`; what is not known is empty."""
    return [_row(entry) for entry in results["entries"]]


def show(results: Mapping[str, Any], console: Console) -> None:
    """For a terminal: the columns that fit, who and what in one of them."""
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("entry", overflow="fold", min_width=20)
    shown = [name for name in ON_A_TERMINAL if name != "normalised" or any(_column(results, name))]
    for name in shown:
        justify: JustifyMethod = "right" if name in NUMBERS else "left"
        table.add_column(ON_A_TERMINAL[name], justify=justify, no_wrap=True)
    for row in rows(results):
        named = dict(zip(HEADINGS, row, strict=True))
        entry = "/".join(filter(None, (named["submitter"], named["system"], named["benchmark"])))
        table.add_row(entry, *(named[name] for name in shown))
    console.print(table)
    for line in _below(results):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _column(results: Mapping[str, Any], name: str) -> list[str]:
    return [row[HEADINGS.index(name)] for row in rows(results)]


def as_csv(results: Mapping[str, Any]) -> str:
    """Comma-separated values with one line of headings."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADINGS)
    writer.writerows(rows(results))
    return text.getvalue()


def as_markdown(results: Mapping[str, Any]) -> str:
    """A table for a page."""
    lines = [_markdown(HEADINGS), _markdown("---:" if name in NUMBERS else "---" for name in HEADINGS)]
    lines += [_markdown(text.replace("|", "\\|") for text in row) for row in rows(results)]
    return "\n".join([*lines, *([""] if _below(results) else []), *_below(results)]) + "\n"


def _row(entry: Mapping[str, Any]) -> list[str]:
    letter = entry["by_the_letter"]
    unknown = "" if letter["rcp"]["verdict"] == "none" else "crash"
    return [
        entry["submitter"] or "",
        entry["system"] or "",
        entry["variant"] or entry["benchmark"],
        entry["ruleset"],
        entry["division"] or "",
        f"{len(entry['runs'])}/{entry['runs_required']}",
        _number(entry["olympic_minutes"]),
        entry["rcp"]["verdict"],
        _number(entry["rcp"]["factor"]),
        _number(entry["score_minutes"]),
        _number(entry.get("normalised")),
        "valid" if entry["valid"] else "not valid",
        {True: "accepted", False: "refused", None: unknown}[letter["accepted"]],
    ]


def _below(results: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{entry['submitter']}/{entry['system']}/{entry['benchmark']} is not valid: {' '.join(entry['reasons'])}"
        for entry in results["entries"]
        if not entry["valid"]
    ]
    lines += [f"Not judged: {reason}" for reason in results.get("unjudged", ())]
    lines += [f"Skipped: {what}" for what in results.get("skipped", ())]
    summary = results.get("summary")
    if summary is not None:
        value = "none, an entry has no score" if summary["value"] is None else f"{summary['value']:.6g}"
        lines.append(f"custom summary (weighted geometric mean of {summary['of']}): {value}")
    return lines


def _markdown(cells: Iterable[str] | Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
