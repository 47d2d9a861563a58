"""Smoke test: the installed package imports, trains for an epoch, judges and reports, in a temporary folder.

    python bench/smoke.py

Prints the seconds of each step and of all, which are under a minute on two idle cores. The exit code is 1 as soon as a
step ends otherwise than it should.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = "import torch, sklearn, hydra, mlperf_logging, train_bench.run.rank, train_bench.cli.program"
SHORT = ("benchmark=resnet_mini", "device=cpu", "runs=1", "seed=1", "benchmark.evaluation.until=1")


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="train_bench_smoke_") as name:
        folder = Path(name)
        campaign, page = folder / "campaign", folder / "report.html"
        step(folder, "imports", ("-c", PACKAGES))
        step(folder, "list", verb("list"), said="resnet_mini")
        # One run of one epoch reaches no target: exit code 1, as for every campaign that does not count.
        run = verb("run", *SHORT, f"output={campaign}")
        step(folder, "run", run, exit_code=1, said="1 of 5 runs")
        step(folder, "judge", verb("judge", str(campaign)), exit_code=1, said="result_0.txt: ")
        step(folder, "report", verb("report", str(campaign), "--to", str(page)), exit_code=1)
        if "resnet_mini" not in page.read_text(encoding="utf-8"):
            sys.exit(f"smoke: {page.name} does not name resnet_mini")
    print(f"smoke: ok, {time.monotonic() - began:.0f} s")


def verb(*words: str) -> tuple[str, ...]:
    return ("-m", "train_bench", *words)


def step(folder: Path, name: str, words: tuple[str, ...], *, exit_code: int = 0, said: str = "") -> None:
    """Run Python with `words` in `folder`; exit with what it printed unless it ends and says as it should."""
    homes = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
    environ = os.environ | homes | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    began = time.monotonic()
    command = [sys.executable, *words]
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    print(f"smoke: {name:8} {time.monotonic() - began:5.1f} s", flush=True)
    if ended.returncode != exit_code or said not in ended.stdout:
        shown = f"{ended.stdout}{ended.stderr}"
        sys.exit(f"{shown}\nsmoke: {name} ended with exit code {ended.returncode}, expected {exit_code}")


if __name__ == "__main__":
    main()
