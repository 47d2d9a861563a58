"""Acceptance of a fleet, for a terminal. Takes the object that `accept --json` prints, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from train_bench.report.console import print_line

HEADINGS = (
    *("node", "seconds", "longer than usual, %", "waited, %", "clock ahead, s", "weights", "MFU, %"),
    "verdict",
)

ROOMY = 100
"""Columns of a terminal from which on a heading is one line."""

SUMMARY = {
    "good": "All nodes are good.",
    "sick": "The fleet has faults.",
    "cannot tell": "Inconclusive: no faults were found, but some checks are undecided.",
}

WORDS = {"good": "good", "sick": "FAULTY", "cannot tell": "inconclusive"}
"""Verdicts of a node as they are shown; the keys are those of `accept --json`."""


def show(content: Mapping[str, Any], console: Console) -> None:
    """One row for each node in the order of the command line, then faults, undecided checks and notes."""
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    for heading in HEADINGS:
        justify: JustifyMethod = "left" if heading in ("node", "weights", "verdict") else "right"
        table.add_column(
            heading.replace(" ", "\n") if console.width < ROOMY else heading,
            justify=justify,
            no_wrap=heading != "node",
            overflow="fold",
        )
    for node in content["nodes"]:
        table.add_row(*(Text(cell) for cell in row(node)))
    console.print(table)
    for one in (*content["findings"], *content["undecided"]):
        print_line(console, one["sentence"])
    for note in content["notes"]:
        print_line(console, note)
    print_line(console, SUMMARY[content["verdict"]])


def row(node: Mapping[str, Any]) -> list[str]:
    """Measurements of one node: the shortest of its trainings, the longest wait."""
    trainings, ahead = node["trainings"], node["ahead"]
    waited = [one["waited"] for one in trainings if one["waited"] is not None]
    return [
        node["name"],
        f"{min(one['seconds'] for one in trainings):.2f}" if trainings else "-",
        longer(node).removesuffix(" %"),
        f"{100 * max(waited):.1f}" if waited else "-",
        "-" if ahead is None else f"{round(ahead, 3) + 0.0:+.3f}",
        ((trainings[0]["weights"] or "-") if trainings else "-")[:8],
        "-" if node["mfu"] is None else f"{100 * node['mfu']:.1f}",
        WORDS[node["verdict"]],
    ]


GPU_HEADINGS = (
    *("node", "GPU", "name", "TFLOP/s", "memory, TB/s", "from host, GB/s", "to host, GB/s"),
    *("slowest pair, GB/s", "verdict"),
)


def gpu_rows(node: Mapping[str, Any]) -> list[list[str]]:
    """Rates under load of each accelerator of a node, and the slower of the all-reduces with its neighbours."""
    if node["load"] is None:
        return []
    rows = []
    for gpu in node["load"]["gpus"]:
        pairs = [pair["rate"] for pair in node["load"]["pairs"] if gpu["index"] in pair["gpus"]]
        units = {"product": 1e12, "memory": 1e12, "to_device": 1e9, "from_device": 1e9}
        rates = [gpu["rates"].get(name, 0.0) / unit for name, unit in units.items()]
        rates.append(min(pairs, default=0.0) / 1e9)
        shown = [f"{rate:.4g}" if rate else "-" for rate in rates]
        rows.append([node["name"], str(gpu["index"]), gpu["name"], *shown, WORDS[gpu["verdict"]]])
    return rows


def longer(one: Mapping[str, Any]) -> str:
    """Slow-down of a node or node group, against the usual time."""
    return "-" if one["longer"] is None else f"{100 * (round(one['longer'], 3) + 0.0):+.1f} %"
