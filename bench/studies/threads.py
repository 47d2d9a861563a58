"""Speed of small benchmarks by threads of a rank, on an idle machine and with busy loops.

    python bench/studies/threads.py [BENCHMARK ...] [threads=1,2] [loops=0,1,2]

One short run for each benchmark, number of threads and number of busy loops, interleaved. Prints training per second of
the timed window, in the unit of the benchmark's schedule (epochs or samples), and, for each number of loops, the ratio
to the idle machine. `threads=64` shows what a host of 64 cores did by default before benchmarks said what they gain by.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.studies.sabotage import SHORT

ROOT = Path(__file__).resolve().parents[2]
LONGER = 3
"""The short runs of the table of faults are made so many times as long."""

START = {"dlrm_mini": 1.0}
"""Start of a run, in the benchmark's unit; else 0."""


def main() -> None:
    """Print a row for each benchmark and number of threads."""
    words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    names = [word for word in sys.argv[1:] if "=" not in word] or list(SHORT)
    threads, loops = (
        [int(number) for number in words.get(name, default).split(",")]
        for name, default in (("threads", "1,2"), ("loops", "0,1,2"))
    )
    headings = "".join(f"{f'{number} busy loop(s)':>22}" for number in loops)
    print(f"{'benchmark':22}{'threads':>8}{headings}")
    for name in names:
        for number in threads:
            print(f"{name:22}{number:8}{_row(name, number, loops)}", flush=True)


def _row(name: str, threads: int, loops: Sequence[int]) -> str:
    paces = []
    for number in loops:
        with busy(number):
            paces.append(pace(name, threads))
    return "".join(f"{one:14.4g} ({one / paces[0]:4.0%}) " for one in paces)


@contextmanager
def busy(number: int) -> Iterator[None]:
    """While it lasts, so many processes compute."""
    loop = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(loop) for _ in range(number)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def pace(name: str, threads: int) -> float:
    """Units of training per second of the timed window of one short run."""
    with tempfile.TemporaryDirectory() as folder:
        start = START.get(name, 0.0)
        until = start + LONGER * (SHORT[name] - start)
        command = [
            *(sys.executable, "-m", "train_bench", "run", f"benchmark={name}", "runs=1", "seed=4711"),
            *(f"launcher.threads_per_rank={threads}", f"output={folder}/run", "energy=off"),
            f"benchmark.evaluation.until={until}",
        ]
        environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
        record = json.loads((Path(folder) / "run" / "record_0.json").read_text())
    return float((record["evaluations"][-1]["position"] - start) / (record["minutes"] * 60))


if __name__ == "__main__":
    main()
