"""Startup time of verbs and of a rank, against an empty Python and `import torch`.

Prints a table of the median wall and processor seconds over interleaved rounds; the last line is `ratio`, the wall time
of `list` over that of an empty Python.

    python bench/startup.py [CAMPAIGN_FOLDER]

Without a folder, a one-run campaign is made first.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROUNDS = 9
PROGRAM = [sys.executable, "-m", "train_bench"]
RANK = "import train_bench.run.rank, train_bench.run.timed_run, train_bench.references.resnet.task"


class Taken(NamedTuple):
    """Wall and processor seconds of a process and its children."""

    wall: float
    processor: float


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = sys.argv[1] if len(sys.argv) > 1 else _campaign(Path(scratch) / "campaign")
        commands = {
            "empty python": [sys.executable, "-c", ""],
            "train-bench list": [*PROGRAM, "list"],
            "train-bench judge": [*PROGRAM, "judge", folder],
            "train-bench report": [*PROGRAM, "report", folder, "--to", f"{scratch}/report.html"],
            "import torch": [sys.executable, "-c", "import torch"],
            "modules of a rank": [sys.executable, "-c", RANK],
        }
        taken: dict[str, list[Taken]] = {name: [] for name in commands}
        for _ in range(ROUNDS + 1):
            for name, command in commands.items():
                taken[name].append(_time(command))
    print("| Start | wall (s) | processor (s) |\n|---|---|---|")
    walls = {name: statistics.median(one.wall for one in values[1:]) for name, values in taken.items()}
    for name, values in taken.items():
        processor = statistics.median(one.processor for one in values[1:])
        print(f"| `{name}` | {walls[name]:.3f} | {processor:.3f} |")
    print(f"ratio rank over torch {walls['modules of a rank'] / walls['import torch']:.2f}")
    print(f"ratio judge {walls['train-bench judge'] / walls['empty python']:.2f}")
    print(f"ratio {walls['train-bench list'] / walls['empty python']:.2f}")


def _time(command: list[str]) -> Taken:
    start, before = time.perf_counter(), os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    wall, after = time.perf_counter() - start, os.times()
    return Taken(
        wall,
        after.children_user - before.children_user + after.children_system - before.children_system,
    )


def _campaign(folder: Path) -> str:
    subprocess.run([*PROGRAM, "run", "runs=1", "seed=1", f"output={folder}"], check=False)
    return str(folder)


if __name__ == "__main__":
    main()
