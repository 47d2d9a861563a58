"""Share of the timed window that a rank waits for data, for each reference at its mini scale.

A run goes through harness, log and task as always, for a few evaluations. Every wait of the training process for
a batch, with loader processes or without, is added up, from `run_start` to `run_stop`. The last line is the largest
share.

    python bench/input_pipeline.py [VARIANT ...] [option=value ...]

    python bench/input_pipeline.py resnet_mini benchmark.data.workers=1
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cattrs
from planned import first, one_run

from train_bench.core.job import Job
from train_bench.launchers.inline import parallel as inline
from train_bench.plan import discover
from train_bench.references.parts import loading
from train_bench.run.events import Log, wall_clock_ms
from train_bench.run.timed_run import timed_run

EVALUATIONS = 3


def main() -> None:
    """Measure and print."""
    options = [word for word in sys.argv[1:] if "=" in word]
    names = [word for word in sys.argv[1:] if "=" not in word]
    variants = names or [name for name in discover.variants() if name.endswith("_mini")]
    shares = {}
    for variant in variants:
        with tempfile.TemporaryDirectory() as scratch:
            overrides = [f"benchmark={variant}", "launcher=inline", "device=cpu", f"output={scratch}"]
            job = one_run([*overrides, *options], first(EVALUATIONS)).jobs[0]
            window, waited = _run(replace(job, folder=Path(scratch)))
        shares[variant] = waited / window
        print(
            f"{variant:16} waits {waited:.2f} of {window:.2f} s for data, {shares[variant]:.1%}", flush=True
        )
    print(f"largest share {max(shares.values()):.4f}")


def _run(job: Job) -> tuple[float, float]:
    """Seconds of the timed window, and of these the seconds spent waiting."""
    config = cattrs.structure(job.config, discover.reference_config(job.reference))
    task = importlib.import_module(f"train_bench.references.{job.reference}.task").Task(config)
    log = Log(job.partial_log, wall_clock_ms())
    with _stopwatch() as waits:
        timed_run(task, job, inline.join(job), log)
    task.close()
    log.close()
    lines = [json.loads(line.partition(" ")[2]) for line in job.partial_log.read_text().splitlines()]
    times = {line["key"]: line["time_ms"] for line in lines}
    return (times["run_stop"] - times["run_start"]) / 1000, sum(waits)


@contextmanager
def _stopwatch() -> Iterator[list[float]]:
    """The seconds of every wait for the next batch of any loader of this process."""
    waits: list[float] = []
    proper = loading.Record.of

    def timed(batches: Iterator[Any]) -> Iterator[Any]:
        start = time.perf_counter()
        for batch in batches:
            waits.append(time.perf_counter() - start)
            yield batch
            start = time.perf_counter()

    with patch.object(loading.Record, "of", lambda self, batches: proper(self, timed(batches))):
        yield waits


if __name__ == "__main__":
    main()
