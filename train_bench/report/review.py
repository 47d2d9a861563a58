"""Review of a round, for a terminal. Takes the object that `review --json` prints, computes nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from train_bench.core.digits import minutes_in_digits
from train_bench.judge.state import state_of
from train_bench.report.console import coloured, print_line
from train_bench.report.score_table import reasons_in_words, validity

NOT_CHECKED = (
    "Not checked for lack of data: idle and peak power of systems, the precisions that an accelerator "
    "supports, software that is not logged. Configuration files are checked only where the source "
    "accompanies the results."
)


def show(content: Mapping[str, Any], console: Console) -> None:
    """One row for each entry in the order of the folders, then each kind of question once."""
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("entry", overflow="fold", min_width=20)
    for heading in ("round", "", "minutes"):
        table.add_column(heading, no_wrap=True)
    table.add_column("questions (of logs)", overflow="fold", min_width=20)
    for name, entry in zip(distinct_names(content["entries"]), content["entries"], strict=True):
        minutes = entry["score_minutes"]
        table.add_row(
            Text(name),
            Text(entry["ruleset"]),
            coloured(state_of(entry["valid"], entry["reasons"])),
            "-" if minutes is None else minutes_in_digits(minutes),
            Text(", ".join(map(kind, entry["questions"])) or "none"),
        )
    console.print(table)
    for name, entry in zip(distinct_names(content["entries"]), content["entries"], strict=True):
        if not entry["valid"]:
            print_line(console, f"{name} is {validity(entry).lower()}: {reasons_in_words(entry)}")
    for one in content["kinds"]:
        print_line(
            console,
            f"[{one['check']}] {one['findings']} in {one['entries']} entries, first {one['first']}: {one['message']}",
        )
    for one in content["points"]:
        print_line(console, f"[points, {one['ruleset']}] {one['message']}")
    for reason in content["unjudged"]:
        print_line(console, f"Not judged: {reason}")
    for what in content["skipped"]:
        print_line(console, f"Skipped: {what}")
    without = sum(not entry["questions"] for entry in content["entries"])
    print_line(console, f"{without} of {len(content['entries'])} entries have no question.")
    print_line(console, NOT_CHECKED)


def distinct_names(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of entries; of several with one name, that with its folder and its date."""
    count = Counter(entry["name"] for entry in entries)
    folders = [entry["folder"] for entry in entries]
    above = os.path.commonpath(folders) if len(folders) > 1 else ""
    return [
        entry["name"]
        if count[entry["name"]] == 1
        else f"{entry['name']} ({os.path.relpath(entry['folder'], above)}, {entry['began'] or 'no date'})"
        for entry in entries
    ]


def kind(question: Mapping[str, Any]) -> str:
    """A kind of question in a row: its subject, and the number of files."""
    key = question["key"]
    about = question["check"] if key in (None, question["check"]) else f"{question['check']} {key}"
    return f"{about} ({question['files']})" if question["files"] > 1 else about
