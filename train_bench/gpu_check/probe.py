"""A probe: a process that measures a part of `train-bench gpu-check`.

It prints its figures as lines `numbers {JSON}` as soon as it has them, so that a probe that is killed leaves those of
before, and ends with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.core.parent_death import ending_with_parent
from train_bench.plan import discover

ROOT = discover.ROOT
PROGRAM = (sys.executable, "-m", "train_bench")
WORD = "numbers"
"""First word of a line of figures."""

LISTS = ("references", "failures")
"""Figures of several lines that are put together."""


class Probe:
    """Device, scratch folder and benchmark of a probe, and its output."""

    def __init__(self, device: str, folder: Path, benchmark: str = "") -> None:
        self.device, self.folder = device, folder
        self.benchmark = benchmark if device != "cpu" else benchmark.replace("_midi", "_mini")
        self.gpu, self.cuda = device != "cpu", device == "cuda"
        self.faults = 0

    def say(self, **numbers: Any) -> None:
        """Print figures at once."""
        sys.stdout.write(f"{WORD} {json.dumps(numbers)}\n")
        sys.stdout.flush()

    def fault(self, sentence: str, output: str = "") -> None:
        """Report what is wrong, after the end of a program's output; the probe goes on."""
        self.faults += 1
        sys.stderr.write(f"{output[-3000:]}\n{sentence}\n")
        sys.stderr.flush()

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.gpu:
            import torch

            torch.accelerator.synchronize()

    def seconds(self, step: Callable[[], object], *, steps: int) -> float:
        """Median seconds of a step, after two more."""
        taken = []
        for number in range(steps + 2):
            self.synchronize()
            began = time.perf_counter()
            step()
            self.synchronize()
            if number >= 2:
                taken.append(time.perf_counter() - began)
        return statistics.median(taken)


def run(command: Sequence[object], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command beside the package, in this process group, so that it is killed with the probe."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        preexec_fn=ending_with_parent(signal.SIGTERM),
    )


def numbers_of(stdout: str) -> dict[str, Any]:
    """Figures of a probe, of all its lines; lists of one name are put together."""
    found: dict[str, Any] = {}
    for line in stdout.splitlines():
        word, _, text = line.partition(" ")
        if word == WORD:
            for key, value in json.loads(text).items():
                found[key] = found.get(key, []) + value if key in LISTS else value
    return found


def main(probes: Mapping[str, Callable[[Probe], None]]) -> None:
    """Run the probe that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probe", choices=probes)
    parser.add_argument("--device", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--benchmark", default="")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    probe = Probe(given.device, given.folder.resolve(), given.benchmark)
    probes[given.probe](probe)
    sys.exit(bool(probe.faults))
