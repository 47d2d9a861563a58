"""Predicted step time on this machine, from operator benchmarks: nothing is trained, no data are read, and the network
need not fit. Operator times are cached on disk and shared by all benchmarks."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from train_bench import __version__
from train_bench.core import files
from train_bench.core.job import Job
from train_bench.dry_run.step import MICRO_BATCHES, Step, step_of
from train_bench.errors import TrainBenchError, WriteError
from train_bench.parallel import Parallel
from train_bench.profile import bricks
from train_bench.profile.bricks import Brick, CallRecorder
from train_bench.profile.document import VERSION
from train_bench.run import system

PHASES = {"forward": "forward", "backward": "backward", "update": "optimizer", "between": "between passes"}

WITHOUT_WORK = "operators that compute nothing"

ROOM = 4
"""Multiple of an operator's input bytes that has to be free: its output, twice, and the kernel's workspace are not
known before."""

ROUNDS, ROUNDS_SECONDS = 8, 10.0
"""Operators are measured in rounds, up to a number or a time limit, and the fastest round of each counts: other load
has the processor for seconds at a time."""

DEAREST = 20


class Known:
    """Cache of seconds of a call in a step, by operator and copies of its values (`bricks.copies_of`), for one kind of
    machine with one torch, in a file below `folder`."""

    def __init__(self, folder: Path, machine: Mapping[str, Any]) -> None:
        digest = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:16]
        self._path, self._machine = folder / f"{digest}.json", machine
        self._seconds: dict[str, float] = {}
        try:
            kept = files.read_json(self._path)["bricks"]
            self._seconds = {key: float(seconds) for key, seconds in kept.items()}
        except (OSError, TrainBenchError, KeyError, TypeError, ValueError, AttributeError):
            pass  # there is none yet, or it is damaged and written anew

    def seconds(self, brick: Brick, copies: int) -> float | None:
        """Seconds of a call, if measured."""
        return self._seconds.get(_key(brick, copies))

    def measure(self, wanted: Iterable[tuple[Brick, int]], device: torch.device) -> int:
        """Measure the operators that are not known, with their copies. Returns their number."""
        wanted = list(wanted)
        new = [one for one in wanted if self.seconds(*one) is None]
        fitting = [
            (brick, copies)
            for brick, copies in new
            if device.type != "cpu" or ROOM * brick.bytes < _free_bytes()
        ]
        began = time.perf_counter()
        for turn in range(ROUNDS):
            if turn and time.perf_counter() - began > ROUNDS_SECONDS:
                break
            for brick, copies in fitting:
                seconds = bricks.measure_in_a_step(brick, device, copies)
                if seconds is not None:
                    key = _key(brick, copies)
                    self._seconds[key] = min(seconds, self._seconds.get(key, seconds))
        return len(wanted) - len(new)

    def write(self) -> None:
        """Write the cache; if that fails, the next prediction measures again."""
        with suppress(WriteError):
            files.write_json(self._path, {"machine": self._machine, "bricks": self._seconds})


def _key(brick: Brick, copies: int) -> str:
    return f"{brick.key} in {copies} copies with their answers"


def predicted(job: Job, task: Any, parallel: Parallel) -> dict[str, Any]:
    """Prediction for `profile.json`."""
    described = system.describe()
    machine = {name: described[name] for name in ("processor", "cores", "accelerators")}
    machine |= {"torch": torch.__version__, "threads": torch.get_num_threads(), "ranks": parallel.size}
    machine |= {"device": parallel.device.type, "products": torch.get_float32_matmul_precision()}
    known = Known(Path(job.work_options["bricks"]), machine)
    calls = CallRecorder()
    step = step_of(
        type(task),
        task.config,
        ranks=parallel.size,
        together=parallel.size // parallel.data_ranks,
        device=job.device,
        precision=job.precision,
        on_operator=lambda phase, *call: calls.add("", PHASES[phase], *call),
    )
    repeated = step.micro_batches / min(step.micro_batches, MICRO_BATCHES)
    parallel.barrier()
    began = time.perf_counter()
    nothing = bricks.measure(bricks.NOTHING, parallel.device)
    copies = _copies(calls, step)
    reused = known.measure(((brick, copies[key]) for key, brick in calls.bricks.items()), parallel.device)
    rows: list[dict[str, Any]] = []
    seconds: dict[str, float] = {}
    for (_, phase), keys in calls.of.items():
        times = 1.0 if phase == "optimizer" else repeated
        for key, count in keys.items():
            brick = calls.bricks[key]
            took = (known.seconds(brick, copies[key]) or 0.0) * count * times
            seconds[phase] = seconds.get(phase, 0.0) + took
            kind = brick.kind
            rows.append(
                {"brick": key, "class": kind, "phase": phase, "calls": count * times, "seconds": took}
            )
    operators = sum(
        count * (1.0 if phase == "optimizer" else repeated) for phase, count in calls.operators.items()
    )
    if nothing is not None:
        seconds[WITHOUT_WORK] = nothing.least * (operators - sum(row["calls"] for row in rows))
    if parallel.rank == 0:
        known.write()
    whole = sum(seconds.values())
    measuring = time.perf_counter() - began
    return {
        "version": VERSION,
        "train_bench": __version__,
        "of": "bricks",
        "benchmark": job.benchmark,
        "launcher": job.launcher,
        "ranks": parallel.size,
        "threads_per_rank": torch.get_num_threads(),
        "device": parallel.device.type,
        "precision": job.precision.value,
        "global_batch_size": step.global_batch_size,
        "answer": {
            "sentence": f"Predicted time of a step of {job.benchmark} with {step.global_batch_size} samples here: "
            f"{whole:.4g} s, from {len(calls.bricks)} unique operators of {operators:,.0f}; measuring "
            f"them took {measuring:.3g} s."
        },
        "step_seconds": whole,
        "phases": [{"name": name, "seconds": value} for name, value in seconds.items()],
        "operators": operators,
        "unique": len(calls.bricks),
        "reused": reused,
        "measuring_seconds": measuring,
        "memory_bytes": sum(step.peak.values()),
        "dearest": sorted(rows, key=lambda row: -row["seconds"])[:DEAREST],
        "not_measured": sorted(
            {
                brick.operator.overloadpacket.__name__
                for key, brick in calls.bricks.items()
                if known.seconds(brick, copies[key]) is None
            }
        ),
    }


def _copies(calls: CallRecorder, step: Step) -> dict[str, int]:
    """Copies by operator key."""
    counts: Counter[str] = sum(calls.of.values(), Counter())
    footprint = sum(step.peak.values()) * min(step.micro_batches, MICRO_BATCHES)
    return {key: bricks.copies_of(brick, footprint, counts[key]) for key, brick in calls.bricks.items()}


def _free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
