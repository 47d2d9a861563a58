"""Pairs of recordings of a reference: one A with its twins, held in memory, and any number of B's.

Every recording is made in a process forked from this one, which has imported everything and computes nothing itself; a
pair takes about a second.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tests.fake_campaigns import make
from tests.references.several_ranks import FromFile
from train_bench.campaign import data
from train_bench.campaign.opened import Campaign
from train_bench.core.job import Job
from train_bench.equivalence import compare, record, recording
from train_bench.equivalence.sides import DRAWS, TWINS
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.run import rank

SEED = 4711
UNIT = 2.0**-23
SEEDS = 20

SHORT = {"minigo": {"hyperparameters": {"min_selfplay_games_per_generation": 32}, "match": {"games": 16}}}
"""Changes beyond the rules of a reference whose data are made by training: no more of them than the ladder takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Difference of B from A: overrides, its ranks, changes to its processes, options of its recording."""

    changes: tuple[str, ...] = ()
    ranks: int = 1
    plant: Callable[[str], Any] | None = None
    recorded: dict[str, Any] | None = None


class Baseline:
    """A of a reference and its twins.

    seconds  that they took together
    failed   what the recording in double precision said, if it failed; empty where there is to be none
    """

    def __init__(self, reference: str, way: Way, folder: Path, *, seed: int = SEED, steps: int = 6) -> None:
        self.reference, self.steps, self.seed, self.folder = reference, steps, seed, folder
        self._way = way
        begun = time.monotonic()
        importlib.import_module(f"train_bench.references.{reference}.task")
        self._record(way, "a", whole=True)
        self._start = folder / "start.npz"
        a = recording.read(folder / "a")
        recording.write_start(a, self._start)
        self._record(way, "rounding", unit=UNIT)
        self._record(replace(way, plant=lambda _: torch.set_num_threads(2)), "threads")
        self.failed = self._said(way, "double", double=True) if way.ranks == 1 else ""
        double = folder / "double"
        self.pair = compare.Pair(
            a=a,
            b=a,
            twins=[recording.read(folder / name) for name in TWINS],
            double=recording.read(double) if recording.is_recording(double) else None,
            unit=UNIT,
        )
        self.seconds = time.monotonic() - begun

    def beside(self, way: Way, name: str) -> compare.Pair:
        """The same A and a B, recorded now. Raises RuntimeError with what B said if it failed."""
        self._record(way, name, whole=True, start=str(self._start), **(way.recorded or {}))
        return replace(self.pair, b=recording.read(self.folder / name))

    def again(self, pair: compare.Pair, way: Way) -> compare.Pair:
        """With what `train-bench equivalent` records besides where a difference is near; that of A once."""
        if len(self.pair.twins) == len(TWINS):
            more = [self._rounded(self._way, f"a {draw}", draw=draw) for draw in DRAWS]
            coarse = self._rounded(self._way, "coarse", unit=compare.COARSE * UNIT)
            self.pair = replace(self.pair, twins=[*self.pair.twins, *more], coarse=[coarse])
        start = {"start": str(self._start)}
        b_again = [self._rounded(way, f"b {draw}", draw=draw, **start) for draw in DRAWS]
        return replace(self.pair, b=pair.b, b_again=b_again)

    def _rounded(self, way: Way, name: str, **options: Any) -> recording.Recording:
        self._record(way, name, **{"unit": UNIT, **options})
        found = recording.read(self.folder / name)
        shutil.rmtree(self.folder / name)
        return found

    def _record(self, way: Way, name: str, **options: Any) -> None:
        said = self._said(way, name, **options)
        if said:
            raise RuntimeError(said)

    def _said(self, way: Way, name: str, **options: Any) -> str:
        job = plan_of(self.reference, way.ranks, way.changes, self.seed).jobs[0]
        options = {"steps": self.steps, "seeds": SEEDS, "data": "real", "start": None, **options}
        return in_processes(way, job, self.folder / name, options)


@functools.cache
def plan_of(reference: str, ranks: int = 1, changes: tuple[str, ...] = (), seed: int = SEED) -> Plan:
    """A mini benchmark of one job under torch's own data parallelism, whose data are prepared."""
    places = ("launcher=torchrun", f"launcher.nproc_per_node={ranks}", "launcher.threads_per_rank=1")
    words = (f"seed={seed}", "device=cpu", *places, *changes)
    planned = make(f"benchmark={reference}_mini", *words, to_be_run=False)
    job = planned.jobs[0]
    short = {name: {**job.config[name], **part} for name, part in SHORT.get(reference, {}).items()}
    data_dir = str(discover.cache() / f"{reference}_mini")
    job = replace(job, config={**job.config, **short, "data_dir": data_dir})
    planned = replace(planned, jobs=(job,))
    data.prepare(Campaign.of(planned))
    return planned


def in_processes(way: Way, job: Job, folder: Path, options: dict[str, Any]) -> str:
    """Record a job in a process for each of its ranks; what they said if one failed."""
    folder.mkdir(parents=True)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def run(number: int) -> None:
        try:
            _rank(way, number, job, folder, options)
        except Exception as error:
            queue.put(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        else:
            queue.put("")

    processes = [context.Process(target=run, args=(number,)) for number in range(way.ranks)]
    for process in processes:
        process.start()
    said = [str(queue.get()) for _ in processes]
    for process in processes:
        process.join()
    return "".join(said)


def _rank(way: Way, number: int, job: Job, folder: Path, options: dict[str, Any]) -> None:
    parallel = FromFile(folder, rank=number, size=way.ranks)
    if way.plant is not None:
        way.plant(job.reference)
    task: Any = rank._task(job, rank._config(job))
    try:
        record.write(record.recorded(job, task, parallel, options), folder, number)
    finally:
        task.close()
    parallel.leave()
