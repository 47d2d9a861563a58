"""Campaigns of five of the mini benchmarks: state, and mean seconds of a run, of this revision and of another one.

    python bench/minis.py FOLDER [VARIANT ...] [--before PYTHON] [--seed 1] [option=value ...]

PYTHON is the interpreter of another checkout's environment (`../before/.venv/bin/python`), whose campaign of a variant
comes just before ours. With one seed for all, runs of both take the same steps where their arithmetic is equal. Results
stay in FOLDER (`VARIANT/before`, `VARIANT/now`), and are not run again if they are there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from train_bench.plan import discover


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*", metavar="VARIANT or option=value")
    parser.add_argument("--before", metavar="PYTHON", help="interpreter of another revision")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    options = ["device=cpu", f"seed={given.seed}", *(word for word in given.words if "=" in word)]
    minis = [word for word in given.words if "=" not in word] or [
        name for name in discover.variants() if name.endswith("_mini")
    ]
    sides = {"before": given.before, "now": sys.executable} if given.before else {"now": sys.executable}
    print("| Mini |", " | ".join(f"{side} | seconds" for side in sides), "| ratio |")
    print("|---|" + "---|" * (2 * len(sides) + 1))
    for mini in minis:
        found = {
            side: _scored(str(python), mini, given.folder.resolve() / mini / side, options)
            for side, python in sides.items()
        }
        cells = [f"{state} | {seconds:.2f}" for state, seconds in found.values()]
        ratio = f"{found['now'][1] / found['before'][1]:.3f}" if len(sides) == 2 else "-"
        print(f"| {mini} | {' | '.join(cells)} | {ratio} |", flush=True)


def _scored(python: str, mini: str, folder: Path, options: list[str]) -> tuple[str, float]:
    """State and mean seconds of a run of a campaign in `folder`, which is run if it is not there."""
    score = folder / "score.json"
    if not score.is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [python, "-m", "train_bench", "run", f"benchmark={mini}", f"output={folder}", *options]
        ended = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)
        if not score.is_file():
            sys.exit(f"{ended.stdout}{ended.stderr}\n{mini} ended with exit code {ended.returncode}.")
    content = json.loads(score.read_text(encoding="utf-8"))
    minutes = [run["minutes"] for run in content["runs"] if run["minutes"] is not None]
    return content["state"], 60 * statistics.fmean(minutes)


if __name__ == "__main__":
    main()
