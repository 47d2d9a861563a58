"""Profiles of the mini benchmarks, on one rank and on two, and their comparison.

Each is profiled by `train-bench profile` with few steps and rounds, into a folder of its own in FOLDER; what is there
already is read and not profiled again, so the whole can be done in pieces. Printed are the share of the window that has
a name (all but "rest"), what each level adds to a step, with its interval, and the sentence; the last lines are the
smallest share with a name and where the page of all of them is. All of them on one rank and on two are meant to take a
quarter of an hour on two idle cores.

With `--bound` the lower bound of each step is measured, too, and a table follows: milliseconds of a step, its bound,
their ratio, the largest part of the gap between them, and the share of the window that waits for data. With
`--device cuda` the ranks compute on GPUs.

    python bench/profile_minis.py FOLDER [VARIANT ...] [--ranks 1|2] [--steps 10] [--rounds 3] [--bound] [--device cpu]
        [option=value ...]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from train_bench.plan import discover

RANKS = {1: ("launcher=inline",), 2: ("launcher=torchrun", "launcher.nproc_per_node=2")}


def main() -> None:
    """Profile and print."""
    options, words = _options()
    minis = sorted({f"{name}_mini" for name in discover.references()} & set(discover.variants()))
    chosen = [word for word in words if "=" not in word] or minis
    overrides = [word for word in words if "=" in word]
    found, named, bounds = [], [], []
    for variant in chosen:
        for ranks in options.ranks or RANKS:
            path = options.folder / f"{variant}_{ranks}"
            began = time.perf_counter()
            if not (path / "profile.json").is_file():
                if (path / "plan.json").is_file():
                    shutil.rmtree(path, ignore_errors=True)  # one that was interrupted
                _profile(
                    path,
                    [f"benchmark={variant}", f"device={options.device}", *RANKS[ranks], *overrides],
                    options,
                )
            found.append(path)
            content = json.loads((path / "profile.json").read_text())
            named.append(1 - sum(row["share"] for row in content["waterfall"] if row["kind"] == "rest"))
            if options.bound:
                bounds.append((variant, ranks, content))
            _print(f"{variant:16} {ranks} rank(s)  {time.perf_counter() - began:.0f} s", content, named[-1])
    print(f"smallest share with a name {min(named):.4f}")
    if bounds:
        _print_bounds(bounds)
    if len(found) > 2:
        page = ["--to", options.folder / "profiles.html"]
        subprocess.run([sys.executable, "-m", "train_bench", "profile", *found, *page], check=True)
        print(f"page: {page[1]}")


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--ranks", type=int, choices=list(RANKS), action="append")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bound", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_intermixed_args()
    return options, options.words


def _profile(path: Path, words: list[str], options: argparse.Namespace) -> None:
    few = ["--steps", str(options.steps), "--rounds", str(options.rounds), *["--bound"] * options.bound]
    command = [sys.executable, "-m", "train_bench", "profile", *words, "seed=1", *few, f"output={path}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _print(what: str, content: dict[str, Any], named: float) -> None:
    levels = ", ".join(
        f"{row['name']} {row['overhead']['median']:+.1%} ({row['overhead']['low']:+.1%} to "
        f"{row['overhead']['high']:+.1%}; {row['overhead']['processor']:+.1%} of processor time)"
        for row in content["levels"][1:]
    )
    print(f"{what}  named {named:.1%}  {levels}")
    print(f"  {content['answer']['sentence']}")
    for finding in content["answer"]["findings"][1:]:
        print(f"  also: {finding['sentence']}")
    for note in content["notes"]:
        print(f"  note: {note}", flush=True)


def _print_bounds(bounds: list[tuple[str, int, dict[str, Any]]]) -> None:
    """A row a profile, the smallest ratio of bound and step first."""
    device = "/".join(sorted({content["device"] for _, _, content in bounds}))
    print(
        f"\n| Benchmark on {device} | ranks | step (ms) | bound (ms) | ratio | largest part of the gap | data |"
    )
    print("|---|---|---|---|---|---|---|")
    for variant, ranks, content in sorted(bounds, key=lambda row: row[2]["bound"]["ratio"]):
        bound, window = content["bound"], content["window"]
        gaps = [row for row in content["waterfall"] if row["kind"] not in {"bound", "evaluation"}]
        largest = max(gaps, key=lambda row: row["seconds"])
        share = largest["seconds"] / window["training_seconds"]
        waiting = sum(row["seconds"] for row in content["waterfall"] if row["kind"] == "input")
        print(
            f"| `{variant}` | {ranks} | {1000 * bound['measured_seconds']:.1f} | {1000 * bound['seconds']:.1f} "
            f"| {bound['ratio']:.2f} | {largest['name']}, {share:.0%} of training "
            f"| {waiting / window['training_seconds']:.0%} |"
        )


if __name__ == "__main__":
    main()
