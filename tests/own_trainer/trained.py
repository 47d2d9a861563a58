"""Runs of the programs in `programs/`, in processes of their own, and what their logs say."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
EPOCHS = json.loads((ROOT / "rcp" / "mini-1.0" / "resnet.json").read_text())["resnet_mini_ref_64"][
    "Epochs to converge"
]
"""Of the reference, by the point of resnet_mini."""


def output(program: str, *words: str, ranks: int = 1) -> str:
    """What a program prints, on one rank or two."""
    command = (sys.executable,) if ranks == 1 else TORCHRUN
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [*command, PROGRAMS / program, *words], env=environ, capture_output=True, text=True, timeout=500
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def told(program: str, *words: str, ranks: int = 1) -> dict[str, Any]:
    """The line of JSON with which a program ends."""
    found: dict[str, Any] = json.loads(output(program, *words, ranks=ranks).splitlines()[-1])
    return found


def accuracies(folder: Path) -> list[float]:
    """What a run's evaluations found; the log is judged, and the run took about as many epochs as the reference's."""
    found = evaluated(folder)
    judge = [sys.executable, "-m", "train_bench", "judge", str(folder), "--ruleset", "mini-1.0"]
    judged = subprocess.run(judge, cwd=ROOT, capture_output=True, text=True).stdout
    assert "result_0.txt: success, converged, follows the rules" in judged, judged
    assert abs(len(found) - statistics.mean(EPOCHS)) <= 3 * statistics.pstdev(EPOCHS), found
    return found


def evaluated(folder: Path) -> list[float]:
    """What the evaluation after each epoch found."""
    events = [
        json.loads(line.removeprefix(":::MLLOG "))
        for line in (folder / "result_0.txt").read_text().splitlines()
    ]
    found = [event for event in events if event["key"] == "eval_accuracy"]
    epochs = [event["metadata"]["epoch_num"] for event in found]
    assert epochs == list(range(1, len(epochs) + 1))
    return [event["value"] for event in found]
