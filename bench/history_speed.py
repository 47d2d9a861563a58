"""Speed of `train-bench history` on a store of many runs.

Makes a store of RUNS runs (100,000 without the argument) in campaigns of five: for two years every night and by several
benchmarks, machines and numbers of ranks, with a share of results that are not valid, and a few that are copies. Then
prints wall seconds of the command, the start of Python included, as a table, as CSV, as JSON, with a filter, with a
query and as a page; the best of three, and the processor seconds of that. The last line is `slowest`, of the wall.

    python bench/history_speed.py [RUNS]
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from train_bench.store import schema

OF_A_CAMPAIGN = 5
LINES = 60
FINDINGS = '[["review", "seeds", 1, "Seeds were derived from a stated base."]]'
ASKED = (
    ([], "table"),
    (["--csv"], "--csv"),
    (["--json"], "--json"),
    (["benchmark=benchmark_3", "since=2026-01"], "filtered"),
    (["--sql", "SELECT benchmark, min(score_minutes) FROM entries WHERE valid GROUP BY 1"], "--sql"),
)


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "results.db"
        generate(store, runs // OF_A_CAMPAIGN)
        print(f"{runs} runs, {store.stat().st_size / 1e6:.0f} MB", flush=True)
        page = store.with_name("history.html")
        asked = (*ASKED, (["--to", str(page), "--price-per-hour", "30"], "--to"))
        taken = {name: min(seconds(store, words) for _ in range(3)) for words, name in asked}
        print(f"the page has {page.stat().st_size / 1e6:.1f} MB")
    for name, (wall, processor) in taken.items():
        print(f"{name:10s} {wall:.2f} s, {processor:.2f} s of a processor")
    print(f"slowest {max(wall for wall, _ in taken.values()):.2f}")


def seconds(store: Path, words: list[str]) -> tuple[float, float]:
    """Seconds on the wall, and of processors."""
    begun, used = time.perf_counter(), _processor_seconds()
    command = [sys.executable, "-m", "train_bench", "history", *words, "--store", str(store)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=os.environ | {"NO_COLOR": "1"})
    return time.perf_counter() - begun, _processor_seconds() - used


def _processor_seconds() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def generate(store: Path, campaigns: int) -> None:
    """Fill a new store in one transaction."""
    chance = random.Random(0)
    with schema.to_write(store) as connection, schema.transaction(connection):
        for number in range(campaigns):
            entry = _entry(number, campaigns, chance)
            _insert(connection, "entries", entry)
            for log in _logs(number, entry):
                _insert(connection, "logs", log)


def _entry(number: int, campaigns: int, chance: random.Random) -> dict[str, Any]:
    line, night = number % LINES, number // LINES
    began = time.gmtime(1_735_689_600 + 730 * 86_400 * night * LINES // campaigns)
    valid = chance.random() > 0.05
    minutes = 10 * math.exp(chance.gauss(0, 0.03))
    return {
        "folder": f"/results/{number:06d}",
        "kind": "campaign",
        "line": _digest(f"line {line}"),
        "task": _digest(f"task {line % 10}"),
        "benchmark": f"benchmark_{line % 10}",
        "variant": f"benchmark_{line % 10}",
        "ruleset": "mini-1.0",
        "rules_digest": _digest(f"rules {line % 10}") * 5,
        "target": "eval_accuracy >= 0.9",
        "batch_size": 64,
        "changes": "[]",
        "hyperparameters": json.dumps({f"hyperparameter_{one}": one / 7 for one in range(12)}),
        "submitter": "local",
        "division": "closed",
        "system": f"1 x (8 x accelerator {line // 30})",
        "host": f"host{line // 10}",
        "environment": _digest(f"{line} {night // 100}"),
        "launcher": "torchrun",
        "ranks": 1 + line // 10,
        "nodes": 1,
        "threads_per_rank": 8,
        "device": "cuda",
        "precision": "bf16",
        "versions": json.dumps({"numpy": "2.4", "python": "3.11.7", "torch": f"2.{night // 100}.0"}),
        "revision": _digest(f"revision {night}"),
        "comparable": _digest(f"line {line}"),
        "began": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", began),
        "runs": OF_A_CAMPAIGN,
        "runs_required": OF_A_CAMPAIGN,
        "score_minutes": minutes if valid else None,
        "low_minutes": minutes - 0.2 if valid else None,
        "high_minutes": minutes + 0.2 if valid else None,
        "joules": 1e6 * minutes * chance.gauss(1, 0.02) if valid and line % 2 else None,
        "valid": valid,
        "reasons": "[]" if valid else '["Two runs did not reach the target."]',
    }


def _logs(number: int, entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every thousandth campaign is a copy of the one before it."""
    original = number - (number % 1000 == 999)
    for run in range(OF_A_CAMPAIGN):
        yield {
            "folder": entry["folder"],
            "file": f"result_{run}.txt",
            "sha256": hashlib.sha256(f"{original} {run}".encode()).hexdigest(),
            "run": run,
            "seed": str(original * OF_A_CAMPAIGN + run),
            "status": "success",
            "minutes": 10.0,
            "converged": True,
            "compliant": True,
            "counted": True,
            "dropped": run == 0,
            "findings": FINDINGS,
        }


def _insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
