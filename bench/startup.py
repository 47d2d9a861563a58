"""Startup time of `train-bench list` and `train-bench judge`, against an empty Python.

Prints the median wall time of each over interleaved rounds; the last line is `ratio`, the time of `list`
over that of an empty Python.

    python bench/startup.py [CAMPAIGN_FOLDER]

Without a folder, a one-run campaign is made first.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 9
PROGRAM = [sys.executable, "-m", "train_bench"]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = sys.argv[1] if len(sys.argv) > 1 else _campaign(Path(scratch) / "campaign")
        commands = {
            "empty python": [sys.executable, "-c", ""],
            "train-bench list": [*PROGRAM, "list"],
            "train-bench judge": [*PROGRAM, "judge", folder],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS + 1):
            for name, command in commands.items():
                seconds[name].append(_time(command))
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    for name, median in medians.items():
        print(f"{name:18} {median:.3f} s")
    print(f"ratio judge {medians['train-bench judge'] / medians['empty python']:.2f}")
    print(f"ratio {medians['train-bench list'] / medians['empty python']:.2f}")


def _time(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def _campaign(folder: Path) -> str:
    subprocess.run([*PROGRAM, "run", "runs=1", "seed=1", f"output={folder}"], check=False)
    return str(folder)


if __name__ == "__main__":
    main()
