"""Claims of records, for a terminal. Takes the object that `referee --json` prints, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from train_bench.core.digits import significant
from train_bench.report.console import print_line

UNKNOWABLE = (
    "What logs cannot show: runs that were left out, chosen seeds, work before the clock, other data, and who measured "
    "the quality."
)
HEADINGS = (
    "runs",
    "reached",
    "mean quality",
    "deviation",
    "p",
    "claim",
    "runs needed",
    "mean time",
    "than the one before",
)


def show(content: Mapping[str, Any], console: Console) -> None:
    """A row for each record, then what is open about each."""
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("record", overflow="fold", min_width=16)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "claim" else "right", overflow="fold")
    for claim in content["records"]:
        table.add_row(*map(Text, (claim["name"], *cells(claim))))
    console.print(table)
    for claim in content["records"]:
        for said in remarks(claim):
            print_line(console, f"{claim['name']}: {said}")
    for reason in content["unread"]:
        print_line(console, f"Not read: {reason}")
    print_line(console, sentence(content))
    print_line(console, UNKNOWABLE)


def for_a_page(content: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of the page of records."""
    return {
        "title": f"{len(content['records'])} record(s)",
        "good": not content["unread"] and all(claim["shown"] for claim in content["records"]),
        "answer": sentence(content),
        "problems": [f"Not read: {reason}" for reason in content["unread"]],
        "what": "Records",
        "headings": ("record", *HEADINGS),
        "rows": [(claim["name"], cells(claim), remarks(claim)) for claim in content["records"]],
        "notes": [UNKNOWABLE],
    }


def cells(claim: Mapping[str, Any]) -> tuple[str, ...]:
    """Cells of a record's row, without its name."""
    needed = claim["needed"]
    return (
        str(claim["runs"]),
        f"{claim['reached']} of {claim['runs']}",
        _number(claim["mean"], 6),
        _number(claim["deviation"], 3),
        probability(claim["p"]),
        "SHOWN" if claim["shown"] else "NOT SHOWN",
        "-" if needed is None else f"{needed:,}",
        _time(claim),
        _gain(claim["gain"], counted=claim["counted"]),
    )


def sentence(content: Mapping[str, Any]) -> str:
    """The test, and how many of the records pass it."""
    target = content["target"]
    side = "above" if target["above"] else "below"
    shown = sum(claim["shown"] for claim in content["records"])
    spread = (
        "by Student's t"
        if target["deviation"] is None
        else f"with a fixed deviation of {target['deviation']:g}"
    )
    return (
        f"{shown} of {len(content['records'])} records show a mean quality {side} {target['value']:g} at p < "
        f"{target['level']:g} (one-sided, {spread}). Runs needed: the least that show this margin with power "
        f"{target['power']:g}, if the spread is this one."
    )


def remarks(claim: Mapping[str, Any]) -> list[str]:
    """Reasons and questions of a record, as sentences."""
    said = [claim["reason"], *claim["questions"]]
    return [text[:1].upper() + text[1:] + ("" if text.endswith("?") else ".") for text in said if text]


def probability(p: float | None) -> str:
    """A p-value with two digits, as small as it is."""
    return "-" if p is None else f"{p:.2g}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _time(claim: Mapping[str, Any]) -> str:
    if claim["time"] is None:
        return "-"
    unit = "" if claim["counted"] else " s"
    spread = claim["time_deviation"]
    return f"{claim['time']:.6g}{unit}" + (f" +- {spread:.2g}" if spread else "")


def _gain(gain: Mapping[str, Any] | None, *, counted: bool) -> str:
    if gain is None:
        return "-"
    said, unit = (
        f"{100 * abs(gain['share']):.2f} % {'less' if gain['shorter'] >= 0 else 'more'}",
        "" if counted else " s",
    )
    if gain["p"] is None:
        return said
    low, high = significant(gain["low"], gain["high"], digits=3)
    return f"{said} ({low} to {high}{unit}, p {probability(gain['p'])})"
