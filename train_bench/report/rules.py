"""Rules of a round, for a terminal. Takes the object that `rules --json` prints, computes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from train_bench.report.console import UNBOUNDED, print_line

MINUTES = re.compile(r"less than (\d+) minutes after init")
"""Limit of the initialization among the constraints of a rule file."""


def show(described: Mapping[str, Any], console: Console) -> None:
    """Target, runs and schedule, then one row per key, then the reference convergence points."""
    benchmark, division = described["benchmark"], described["division"]
    limit = described["init_minutes"]
    for line in (
        f"{benchmark} under {described['ruleset']}, {division} division",
        f"target: {described['target']}",
        f"runs: {described['runs']}, of which the {described['drop']} fastest and slowest are dropped",
        f"evaluation, in {described['unit']}s: {described['schedule'] or 'the rules give no schedule'}",
        f"initialization: at most {limit:g} minutes{_official(described, limit)}"
        if limit
        else "initialization: no limit is known",
        f"seeds: {'fixed ones are allowed' if described['fixed_seeds_allowed'] else 'from entropy only'}",
    ):
        _say(console, line)
    console.print(_keys(described, separator=" " if console.width == UNBOUNDED else "\n"))
    explained = {key["key"]: key["meaning"] for key in described["keys"] if key["meaning"]}
    if explained:
        _say(console, "Disclosures, logged from the plan; a program of your own announces them:")
        for name, meaning in explained.items():
            _say(console, f"  {name}: {meaning}")
    if described["reference_points"]:
        console.print(_points(described))
    for erratum in described["errata"]:
        _say(console, f"erratum {erratum['id']}: {erratum['why']}")


def _official(described: Mapping[str, Any], limit: float) -> str:
    """The limit of the official checker, where the rule files of the round have another one."""
    said = " ".join(constraint for key in described["keys"] for constraint in key["constraints"])
    found = MINUTES.search(said)
    return f" (the official checker looks for {found[1]} alone)" if found and float(found[1]) != limit else ""


def _keys(described: Mapping[str, Any], *, separator: str) -> Table:
    """Keys without line breaks; `separator` stands between a key and the choice that its rule depends on."""
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    for heading in ("key", "occurs", "allowed", "reference"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "key")
    for key in described["keys"]:
        allowed = "; ".join(key["constraints"]) or "anything"
        name = f"{key['key']}{separator}({key['when']})" if key["when"] else key["key"]
        table.add_row(name, key["occurs"], allowed, _shown(key["reference"]))
    return table


def _points(described: Mapping[str, Any]) -> Table:
    table = Table(
        title="reference convergence points",
        title_justify="left",
        box=box.SIMPLE,
        padding=(0, 1),
        pad_edge=False,
    )
    for heading in ("batch size", f"mean {described['unit']}s", "lowest accepted", "runs", "used"):
        table.add_column(heading, justify="right")
    for point in described["reference_points"]:
        numbers = (f"{point['mean']:.3f}", f"{point['bound']:.3f}")
        table.add_row(
            str(point["batch_size"]), *numbers, str(point["count"]), "yes" if point["used"] else "pruned"
        )
    return table


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _say(console: Console, text: str) -> None:
    print_line(console, text)
