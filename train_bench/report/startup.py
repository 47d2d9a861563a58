"""Ladder of starts, for a terminal. Takes the object that `startup --json` prints, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from train_bench.core.digits import significant
from train_bench.report.console import print_line

HEADINGS = (
    "",
    "seconds",
    "waited",
    "imports",
    "build",
    "weights",
    "inference",
    "resident",
    "right",
    "retained",
)


def show(content: Mapping[str, Any], console: Console) -> None:
    """A table for each model, and from which size on weights matter."""
    for model in content["models"]:
        print_line(
            console,
            f"{model['name']}: weights of {size(model['bytes'])}, medians of {content['rounds']} round(s)",
        )
        table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
        for heading in HEADINGS:
            right = heading not in ("", "retained")
            table.add_column(heading, justify="right" if right else "left", no_wrap=right)
        for level in model["levels"]:
            table.add_row(*row(level, content["rounds"]))
        console.print(table)
        for level in model["levels"]:
            if level["level"] == "L2" and level["bytes"]["copied"]:
                copied, mapped = (size(level["bytes"][kind]) for kind in ("copied", "mapped"))
                print_line(
                    console,
                    f"The model has {copied} in another layout than the file: they are copied, {mapped} mapped.",
                )
    if content["weights_matter"] is not None:
        print_line(console, sentence(content["weights_matter"]))
    wrong = [
        f"{model['name']} at {level['level']}"
        for model in content["models"]
        for level in model["levels"]
        if level["right"] < content["rounds"]
    ]
    if wrong:
        print_line(console, f"Wrong answers: {', '.join(wrong)}. These starts do not count.")
    else:
        print_line(console, "All answers are right, and equal bit by bit at all levels.")


def sentence(matter: Mapping[str, Any]) -> str:
    """Sizes from which weights matter."""
    share = f"Weights of {size(matter['bytes'])} are {100 * matter['share']:.1f} % of a cold start."
    if matter["half_bytes"] is None:
        return f"{share} From which size on they matter is measured with larger ones: --synthetic 1GB."
    return (
        f"{share} It loads {size(matter['bytes_per_second'])}/s and takes {matter['seconds_without_weights']:.2f} s "
        f"without weights, so that these are a tenth of it from {size(matter['tenth_bytes'])} on, and half of it from "
        f"{size(matter['half_bytes'])} on."
    )


def row(level: Mapping[str, Any], rounds: int) -> list[str]:
    """Medians of one level."""
    resident = level["resident"]["most" if level["level"] == "L0" else "least"]
    return [
        level["level"],
        f"{level['seconds']:.3f}",
        "-" if level["waited"] is None else f"{level['waited']:.3f}",
        *(f"{seconds:.3f}" if seconds else "-" for seconds in level["stages"].values()),
        f"{100 * resident:.1f} %",
        f"{level['right']} of {rounds}",
        level["retained"],
    ]


def size(count: float) -> str:
    """Bytes in words."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{significant(count / unit, digits=3)[0]} {name}"
    return f"{count:.0f} bytes"
