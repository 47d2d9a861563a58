"""The results table of a round: one row per entry. Takes the objects of `score --json`, computes nothing."""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from train_bench.core.digits import minutes_in_digits
from train_bench.core.escape import plain_value
from train_bench.report.console import STYLES, print_line
from train_bench.report.score_table import origin_in_words, reasons_in_words, validity

HEADINGS = (
    *("submitter", "system", "benchmark", "ruleset", "division", "runs", "olympic_minutes", "rcp"),
    *("rcp_factor", "score_minutes", "normalised", "folder", "created", "launcher", "ranks", "revision"),
    *("valid", "official_verdict"),
)
OF_CAMPAIGNS = frozenset({"folder", "created", "launcher", "ranks", "revision"})
"""Columns that distinguish the campaigns of one machine; without any campaign only the CSV table has them."""

ON_A_TERMINAL = {
    "ruleset": "round",
    "score_minutes": "minutes",
    "normalised": "normalised",
    "rcp": "RCP",
    "valid": "",
    "official_verdict": "official",
}
MAY_BE_EMPTY = {"normalised", "official_verdict"}
NUMBERS = {"runs", "ranks", "olympic_minutes", "rcp_factor", "score_minutes", "normalised"}

FORMULA = ("=", "+", "-", "@")
"""First characters of a spreadsheet formula."""


def rows(results: Mapping[str, Any]) -> list[list[str]]:
    """One row per entry, in the order of `HEADINGS`; unknown values are empty."""
    return [_row(entry) for entry in results["entries"]]


def show(results: Mapping[str, Any], console: Console) -> None:
    """Terminal table: the columns that fit, with submitter and system in one of them."""
    results = plain_value(results)
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("entry", overflow="fold", min_width=20)
    shown = [name for name in ON_A_TERMINAL if name not in MAY_BE_EMPTY or any(_column(results, name))]
    for name in shown:
        justify: JustifyMethod = "right" if name in NUMBERS else "left"
        table.add_column(ON_A_TERMINAL[name], justify=justify, no_wrap=True)
    names = called(results["entries"])
    for name, entry, row in zip(names, results["entries"], rows(results), strict=True):
        named = dict(zip(HEADINGS, row, strict=True))
        whence = origin_in_words(entry)
        table.add_row(
            f"{name}\n{whence}" if whence else name, *(_coloured(named[column]) for column in shown)
        )
    console.print(table)
    for line in _below(results):
        print_line(console, line)


def _coloured(text: str) -> Text:
    return Text(text, style=STYLES.get(text.upper(), ""))


def called(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Submitter, system and benchmark of each entry; of a campaign the benchmark and the distinguishing part of its
    folder, as of entries that would have one name."""
    folders = [str(entry.get("folder") or "") for entry in entries]
    above = os.path.commonpath(folders) if len(folders) > 1 and all(folders) else ""
    places = [os.path.relpath(folder, above) if above else folder for folder in folders]
    names = []
    for entry, place in zip(entries, places, strict=True):
        parts = (entry["submitter"], entry["system"], entry["variant"] or entry["benchmark"])
        in_folder = f"{parts[-1]} in {place}"
        names.append(in_folder if entry["launcher"] and place else "/".join(filter(None, parts)))
    alike = Counter(zip(names, (entry["ruleset"] for entry in entries), strict=True))
    return [
        f"{name} in {place}"
        if place and alike[name, entry["ruleset"]] > 1 and not entry["launcher"]
        else name
        for name, place, entry in zip(names, places, entries, strict=True)
    ]


def _column(results: Mapping[str, Any], name: str) -> list[str]:
    return [row[HEADINGS.index(name)] for row in rows(results)]


def as_csv(results: Mapping[str, Any]) -> str:
    """Comma-separated values with one line of headings."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADINGS)
    writer.writerows(
        [_harmless(name, text) for name, text in zip(HEADINGS, row, strict=True)] for row in rows(results)
    )
    return text.getvalue()


def as_markdown(results: Mapping[str, Any]) -> str:
    """A table for a page."""
    left_out = set() if any(_column(results, "launcher")) else OF_CAMPAIGNS
    shown = [at for at, name in enumerate(HEADINGS) if name not in left_out]
    lines = [_markdown(HEADINGS[at] for at in shown)]
    lines.append(_markdown("---:" if HEADINGS[at] in NUMBERS else "---" for at in shown))
    lines += [_markdown(_escaped(row[at]) for at in shown) for row in rows(results)]
    below = [_escaped(line) for line in _below(results)]
    return "\n".join([*lines, *([""] if below else []), *below]) + "\n"


def _escaped(text: str) -> str:
    """Text without Markdown syntax: column, link, code or HTML."""
    return re.sub(r"([\\|<\[`])", r"\\\1", text)


def _row(entry: Mapping[str, Any]) -> list[str]:
    official = entry["official_verdict"]
    unknown = "" if official["rcp"]["verdict"] == "none" else "crash"
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
        entry.get("folder") or "",
        entry.get("created") or "",
        entry["launcher"] or "",
        str(entry["world_size"] or ""),
        entry.get("revision") or "",
        validity(entry).lower(),
        {True: "accepted", False: "refused", None: unknown}[official["accepted"]],
    ]


def _below(results: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{name} is {validity(entry).lower()}: {reasons_in_words(entry)}"
        for name, entry in zip(called(results["entries"]), results["entries"], strict=True)
        if not entry["valid"]
    ]
    lines += [
        f"{name} is for review: {entry['peers']['message']}"
        for name, entry in zip(called(results["entries"]), results["entries"], strict=True)
        if (entry.get("peers") or {}).get("outlier")
    ]
    lines += [f"Not judged: {reason}" for reason in results.get("unjudged", ())]
    lines += [f"Skipped: {what}" for what in results.get("skipped", ())]
    summary = results.get("summary")
    if summary is not None:
        value = (
            "none, because an entry has no score" if summary["value"] is None else f"{summary['value']:.6g}"
        )
        lines.append(f"custom summary (weighted geometric mean of {summary['of']}): {value}")
    return lines


def _harmless(name: str, text: str) -> str:
    """Cell that no spreadsheet evaluates as a formula."""
    return f"'{text}" if name not in NUMBERS and text.startswith(FORMULA) else text


def _markdown(cells: Iterable[str] | Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None) -> str:
    return "" if value is None else minutes_in_digits(value)
