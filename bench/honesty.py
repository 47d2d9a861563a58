"""Permuted-label control: on permuted training labels no mini benchmark may reach its target.

Every `*_mini` benchmark, or those that are named, trains on shuffled labels for 1.5 times as long as its slowest
reference run, or up to its own limit where it has no reference runs. A run that reaches the target means that the
benchmark memorises, leaks or cannot be missed; then the exit code is 1. Printed for each benchmark: how long it
trained, its best quality and its target.

    python bench/honesty.py [RUNS [BENCHMARK ...]]
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from train_bench.plan import discover
from train_bench.quality import Target
from train_bench.rules import ruleset

PROGRAM = [sys.executable, "-m", "train_bench"]
PATIENCE = 1.5


def main() -> None:
    """Run the mini benchmarks and exit with 1 if one of them is not honest."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    names = sys.argv[2:] or [name for name in discover.variants() if name.endswith("_mini")]
    dishonest = [name for name in names if not _honest(name, runs)]
    sys.exit(1 if dishonest else 0)


def _honest(name: str, runs: int) -> bool:
    described = discover.describe_variant(name)
    file = f"{described['ruleset']}/{described['reference']}.json"
    slowest = _slowest(name, [folder / file for folder in discover.rcp_folders()])
    limit = [] if slowest is None else [f"benchmark.evaluation.until={math.ceil(PATIENCE * slowest)}"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        overrides = ["benchmark.data.permute_labels=true", *limit, f"runs={runs}"]
        subprocess.run([*PROGRAM, "run", f"benchmark={name}", *overrides, f"output={folder}"], check=False)
        judged = subprocess.run(
            [*PROGRAM, "judge", str(folder), "--json"], stdout=subprocess.PIPE, check=False
        )
        entry = json.loads(judged.stdout)["entries"][0]
        records = [json.loads(path.read_text()) for path in sorted(folder.glob("record_*.json"))]
    target = ruleset.load(described["ruleset"]).benchmark(name).target
    best = [_best([item["value"] for item in record["evaluations"]], target) for record in records]
    lengths = [f"{record['evaluations'][-1]['position']:g}" for record in records]
    honest = len(best) == runs and not any(run["converged"] for run in entry["runs"])
    verdict = "never reached" if honest else "REACHED OR NOT RUN"
    print(f"{name}: permuted labels, {entry['unit']}s: {', '.join(lengths)}", end=" ")
    print("(no reference runs):" if slowest is None else f"(slowest reference run {slowest:g}):", end=" ")
    print(f"best quality {', '.join(best)}; target ({entry['target']}) {verdict}")
    return honest


def _best(values: list[float] | list[dict[str, float]], target: Target) -> str:
    """The best value of each metric during a run."""
    qualities = [target.quality_of(value).metrics for value in values]
    best = {
        one.metric: (max if one.higher_is_better else min)(quality[one.metric] for quality in qualities)
        for one in target.thresholds
    }
    return " ".join(f"{metric} {value:.4f}" for metric, value in best.items())


def _slowest(name: str, files: Sequence[Path]) -> float | None:
    """Progress that the slowest reference run needed, if there are any."""
    needed = [
        max(next(values for key, values in record.items() if key.endswith("to converge")))
        for file in files
        if file.is_file()
        for record in json.loads(file.read_text()).values()
        if record["Benchmark"] == name
    ]
    return max(needed, default=None)


if __name__ == "__main__":
    main()
