"""Fakes of the contracts: a task that tells what was done to it, one rank, a clock that counts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from train_bench.core.job import Device, Job, Precision
from train_bench.progress import EvalSchedule, Mark, Progress, Unit
from train_bench.quality import Quality, Target, Threshold
from train_bench.rules import ruleset
from train_bench.task import ORDER_KEPT, DataFacts, DataFingerprint, SamplesTaken, SetFingerprint

DIGESTS = ruleset.load("mini-1.0").benchmark("resnet_mini").data or {}


class CountingClock:
    """Every look at it costs one millisecond; `pass_ms` lets time pass."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def pass_ms(self, amount: int) -> None:
        self.now_ms += amount


def fingerprint(train_samples: int) -> DataFingerprint:
    """Of so many training and 10 evaluation samples, none of which are the same, with the digests of the benchmark."""
    train, evaluation = (
        SetFingerprint(samples=count, left_out=0, compared=count, digest=DIGESTS[part])
        for part, count in (("train", train_samples), ("evaluation", 10))
    )
    return DataFingerprint(train=train, evaluation=evaluation, files_in_common=0, samples_in_common=0)


class FakeTask:
    """Reaches each quality of `qualities` in turn, one per evaluation, and writes a diary."""

    def __init__(
        self,
        qualities: list[float],
        clock: CountingClock | None = None,
        fail_in: str = "",
        train_samples: int | None = 100,
    ) -> None:
        self.qualities = list(qualities)
        self.train_samples = train_samples
        self.diary: list[str] = []
        self.clock = clock or CountingClock()
        self.fail_in = fail_in
        self.trained = self.loaded = 0

    def _note(self, what: str) -> None:
        self.diary.append(what)
        if what == self.fail_in:
            raise ValueError(f"broken in {what}")

    def build(self, seed: int, parallel: object) -> None:
        self.clock.pass_ms(5_000)
        self._note("build")

    def initialized_tensors(self) -> list[str]:
        return ["conv0_weight", "fc1_bias"]

    def open_data(self) -> DataFacts:
        self._note("open_data")
        return DataFacts(
            train_samples=self.train_samples,
            eval_samples=10,
            fingerprint=fingerprint(self.train_samples or 100),
        )

    def train_until(self, mark: Mark) -> Progress:
        self.clock.pass_ms(60_000)
        self._note(f"train_until {mark.count}")
        self.trained = mark.count
        return Progress(samples=mark.count)

    def evaluate(self) -> Quality:
        self.clock.pass_ms(1_000)
        self._note("evaluate")
        return Quality(metrics={"top1": self.qualities.pop(0)})

    def samples_taken(self) -> SamplesTaken:
        epoch = self.train_samples or 100
        return SamplesTaken(
            trained=self.trained - self.loaded,
            order=[np.arange(self.loaded, min(self.trained, self.loaded + ORDER_KEPT)) % epoch],
            start=self.loaded,
            epoch=epoch,
            evaluated=[10],
            evaluation=[np.arange(10)],
        )

    def save(self, folder: Path) -> None:
        self._note("save")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fake.json").write_text(json.dumps({"qualities": self.qualities, "trained": self.trained}))

    def load(self, folder: Path) -> None:
        self._note("load")
        saved = json.loads((folder / "fake.json").read_text())
        self.qualities = saved["qualities"]
        self.trained = self.loaded = saved["trained"]

    def close(self) -> None:
        self._note("close")


class OneRank:
    """A rank without others."""

    device = SimpleNamespace(type="cpu")
    rank = local_rank = data_rank = 0
    size = 1

    def sum(self, value):
        return value

    def gather_objects(self, value):
        return [value]

    def from_rank_zero(self, value):
        return value

    def barrier(self) -> None: ...

    def replicated(self):
        return iter(())


def job(folder: Path, **changes) -> Job:
    """A job of a benchmark that evaluates after epochs 1 to 4."""
    schedule = EvalSchedule(first=1, period=1, until=4, samples_per_unit=100)
    values = {
        "benchmark": "fake",
        "reference": "fake",
        "launcher": "inline",
        "launcher_config": {},
        "index": 0,
        "seed": 7,
        "nodes": 1,
        "nproc_per_node": 1,
        "threads_per_rank": None,
        "device": Device.cpu,
        "precision": Precision.fp32,
        "drop_caches": False,
        "start_limit_seconds": 60.0,
        "stall_limit_seconds": 60.0,
        "config": {"hyperparameters": {"global_batch_size": 32, "lars_epsilon": None}},
        "announcement": {"submission_benchmark": "fake"},
        "target": Target(thresholds=(Threshold(metric="top1", value=0.9),)),
        "unit": Unit.EPOCH,
        "schedule": schedule,
        "folder": folder,
    }
    return Job(**(values | changes))


class TracedRanks(OneRank):
    """A rank that writes its collectives into `trace`. Rank 0 answers with the values of `first` in turn, if any."""

    def __init__(
        self, trace: list[str], *, rank: int = 0, local_rank: int | None = None, size: int = 2
    ) -> None:
        self.trace, self.rank, self.size = trace, rank, size
        self.data_rank, self.local_rank = rank, rank if local_rank is None else local_rank
        self.first: list | None = None

    def barrier(self) -> None:
        self.trace.append("barrier")

    def from_rank_zero(self, value):
        self.trace.append("from rank 0")
        return value if self.first is None else self.first.pop(0)

    def gather_objects(self, value):
        self.trace.append("gather")
        return [value] * self.size if self.rank == 0 else None


class TracedLog:
    """A log that writes the names of its lines into `trace`."""

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace

    def __getattr__(self, name: str):
        return lambda *args, **kwargs: self.trace.append(f"log {name}")
