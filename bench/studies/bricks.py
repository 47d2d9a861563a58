"""Accuracy of predicted step times: steps predicted from operator benchmarks against measured steps, and bounds against
measured steps.

For each variant a synthetic micro-batch is trained on, and the same step is predicted in a process of its own
(`train-bench profile --bricks`), with an empty cache of operator times that all variants share. Networks at full size
take the samples in SAMPLES. Printed are both times, the error, the operators that were cached, and the time of
predicting against measuring the steps; the last line has the median and the largest error. The measured time is that of
the fastest step, because an operator's is that of undisturbed calls; the median step is printed, too. With `--bound`,
minis are profiled instead, and the ratio of bound to measured is printed; with `--torchvision`, that of torchvision's
ResNet-50 in place of a variant.

    python bench/studies/bricks.py [VARIANT ...] [--bound | --torchvision]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.references.configs import composed
from train_bench.check.one_rank import OneRank
from train_bench.core.job import Precision
from train_bench.dry_run.step import restart_iterator
from train_bench.dry_run.watch import Watch
from train_bench.plan import discover
from train_bench.profile import bound
from train_bench.profile.bricks import CallRecorder
from train_bench.profile.graph import Graph

SAMPLES = {"resnet": 8, "ssd": 4, "unet3d": 1, "bert": 2, "rnnt": 8}
"""Samples of full-size networks; the others do not fit a machine of 24 GB, or need files to be fetched."""

SECONDS, STEPS = 5.0, 3
"""A step is repeated until both are reached, after one that is left out."""


def main() -> None:
    """Predict, measure, print."""
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    minis = sorted({f"{name}_mini" for name in discover.references()} & set(discover.variants()))
    torch.set_num_threads(1)
    if "--torchvision" in sys.argv:
        _print_torchvision(SAMPLES["resnet"])
        return
    with tempfile.TemporaryDirectory() as scratch:
        if "--bound" in sys.argv:
            for name in names or minis:
                _print_bound(name, Path(scratch))
            return
        errors = [_compared(name, Path(scratch)) for name in names or [*minis, *SAMPLES]]
    print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}")


def _compared(name: str, scratch: Path) -> float:
    words = []
    if name in SAMPLES:
        words = [f"hyperparameters.global_batch_size={SAMPLES[name]}"]
        words += ["pretrained=false"] * (name == "bert")  # its published weights change no time
    told = _profiled(name, scratch / name, "--bricks", *(f"benchmark.{word}" for word in words))
    median, fastest, took = _measured(name, words)
    error, of_median = told["step_seconds"] / fastest - 1, told["step_seconds"] / median - 1
    print(
        f"{name:16} predicted {told['step_seconds'] * 1000:9.2f} ms, measured {fastest * 1000:9.2f} ms ({error:+.1%}; "
        f"the median {median * 1000:.2f}, {of_median:+.1%}); {told['unique']} bricks, "
        f"{told['reused']} known; measuring bricks {told['measuring_seconds']:.1f} s, steps {took:.1f} s"
        + (f"; without {', '.join(told['not_measured'])}" if told["not_measured"] else ""),
        flush=True,
    )
    return abs(error)


def _profiled(name: str, folder: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "train_bench", "profile", f"benchmark={name}", *words]
    command += ["launcher.threads_per_rank=1", f"output={folder}", "--json"]
    environment = (
        os.environ | {"XDG_CACHE_HOME": str(folder.parent / "cache")} if "--bricks" in words else None
    )
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    content: dict[str, Any] = json.loads((folder / "profile.json").read_text())
    return content


def _measured(name: str, words: list[str]) -> tuple[float, float, float]:
    """The median step and the fastest, which differ much where others use the machine, and how long it all took."""
    began = time.perf_counter()
    config = restart_iterator(composed(name, "warm_up_steps=0", *words))
    task = discover.task(config.reference)(config)
    task.build(1, OneRank())
    hyperparameters = config.hyperparameters
    batch = task.synthetic(hyperparameters.global_batch_size // hyperparameters.gradient_accumulation_steps)
    times = _times(lambda: task.iterate(batch))
    task.close()
    return statistics.median(times), min(times), time.perf_counter() - began


def _times(step: Any) -> list[float]:
    step()
    times: list[float] = []
    while len(times) < STEPS or sum(times) < SECONDS:
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return times


def _print_bound(name: str, scratch: Path) -> None:
    told = _profiled(name, scratch / name, "--bound", "seed=1")["bound"]
    phases = ", ".join(
        f"{row['name']} {row['seconds'] / row['measured_seconds']:.0%}"
        for row in told["phases"]
        if row["measured_seconds"]
    )
    print(
        f"{name:16} bound {told['seconds'] * 1000:8.2f} ms of {told['measured_seconds'] * 1000:8.2f} ms, ratio "
        f"{told['ratio']:.3f} (error {told['error']:.1%}): {phases}",
        flush=True,
    )


def _print_torchvision(samples: int) -> None:
    """A step with SGD in fp32; the reference's network takes as many samples above."""
    from torchvision.models import resnet50

    model = resnet50()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(samples, 3, 224, 224), torch.randint(1000, (samples,))

    def step() -> None:
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    measured = statistics.median(_times(step))
    calls, watch = CallRecorder(), Watch()
    watch.on_operator = lambda phase, *call: calls.add("", phase, *call)
    with watch:
        step()
    told = bound.measure(calls, Graph(), 1, torch.device("cpu"), Precision.fp32)
    least = sum(seconds for phases in told["layers"].values() for seconds in phases.values())
    print(
        f"torchvision's resnet50, {samples} samples: bound {least * 1000:.2f} ms of {measured * 1000:.2f} ms, ratio "
        f"{least / measured:.3f} (error {told['error']:.1%})",
        flush=True,
    )


if __name__ == "__main__":
    main()
