"""Two ranks of one process group over Gloo, each under the clock: `python -m tests.run.two_ranks FOLDER` imports what
takes long once, then forks. Each rank leaves `seen_RANK.json`: its events by scenario, in seconds of the machine's
monotonic clock, which both processes share. Rank 1 is slow to build, and rank 0 is slow to write `run_start`."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

from tests.own_trainer.test_benchmark import VALUES, benchmark
from tests.run.fakes import FakeTask, job
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.quality import Quality
from train_bench.run import events
from train_bench.run.checkpoints import Checkpoints
from train_bench.run.events import Log
from train_bench.run.timed_run import timed_run

SLOW_SECONDS = 0.3
"""Wait of one rank that the other would not have by itself. Only a test that ought to fail depends on its length."""

LIMIT = timedelta(seconds=60)
"""Time after which a rank that waits in vain fails."""


class Rank(TorchParallel):
    """A rank of two, which meet in `folder`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder = folder
        planned = job(folder, nproc_per_node=2, launcher="torchrun")
        super().__init__(planned, rank=rank, local_rank=rank, size=2)

    def _meet(self) -> None:
        distributed.init_process_group(
            "gloo", init_method=f"file://{self._folder}/meet", rank=self.rank, world_size=2, timeout=LIMIT
        )


class TimedTask(FakeTask):
    """Notes when it did what; has one weight that both ranks hold."""

    def __init__(self, qualities: list[float], *, builds_slowly: bool) -> None:
        super().__init__(qualities)
        self.builds_slowly = builds_slowly
        self.at: dict[str, float] = {}

    def _note(self, what: str) -> None:
        super()._note(what)
        self.at.setdefault(what, time.monotonic())

    def build(self, seed: int, parallel) -> None:
        model = torch.nn.Linear(1, 1)
        parallel.wrap(model, torch.optim.SGD(model.parameters(), lr=1.0))
        if self.builds_slowly:  # behind `wrap`, which waits for the other rank
            time.sleep(SLOW_SECONDS)
        super().build(seed, parallel)

    def evaluate(self) -> Quality:
        quality = super().evaluate()
        self.at["last evaluation"] = time.monotonic()
        return quality


class SlowLog(Log):
    """Writes the start of the clock late, and notes when a line was written."""

    def __init__(self, path: Path | None) -> None:
        self.at: dict[str, float] = {}
        super().__init__(path, lambda: int(time.monotonic() * 1000))

    def run_start(self) -> None:
        time.sleep(SLOW_SECONDS)
        super().run_start()
        self.at["run_start"] = time.monotonic()

    def init_stop(self) -> None:
        self.at["init_stop"] = time.monotonic()
        super().init_stop()


def timed(parallel: Rank, folder: Path, qualities: list[float], clock=None) -> dict:
    """One run under the clock, with checkpoints if the rank's `clock` for them is given."""
    folder.mkdir(exist_ok=True)
    task = TimedTask(qualities, builds_slowly=parallel.rank == 1)
    planned = job(folder, nproc_per_node=2, checkpoint_seconds=None if clock is None else 30.0)
    log = SlowLog(folder / f"result_{parallel.rank}.txt" if parallel.rank == 0 else None)
    checkpoints = None if clock is None else Checkpoints(planned, parallel, clock)
    try:
        status = timed_run(task, planned, parallel, log, checkpoints=checkpoints)
    finally:
        log.close()
    return {"status": status, "did": task.diary, "at": task.at | log.at}


def own_program(rank: int, folder: Path) -> dict[str, float]:
    """The clock of a user's own program, which has initialised torch.distributed; when it did what."""
    at: dict[str, float] = {}
    logs: list[SlowLog] = []
    events.Log = lambda path, clock: logs.append(SlowLog(path)) or logs[0]  # type: ignore
    one = benchmark(folder)
    one.announce(**VALUES)
    one.init_start()
    if rank == 1:
        time.sleep(SLOW_SECONDS)
    at["build"] = time.monotonic()
    one.weights_initialized("weight")
    one.init_stop()
    if rank == 1:
        time.sleep(SLOW_SECONDS)
    at["prepared"] = time.monotonic()
    one.run_start(train_samples=1000, eval_samples=100)
    at["open_data"] = time.monotonic()
    one.block_start()
    one.eval_start()
    one.report([0.9, 0.1][rank])
    assert one.reached and (one.rank, one.world_size) == (rank, 2)
    return at | logs[0].at


def main(folder: Path) -> None:
    """Both ranks; the parent is rank 0 and ends with the exit code of rank 1 if that failed."""
    torch.set_num_threads(1)
    child = os.fork()
    rank = 0 if child else 1
    parallel = Rank(folder, rank)
    # Rank 1 would stop a block earlier and write its checkpoints at other evaluations, if it were asked.
    own = [[0.1, 0.95], [0.95, 0.1]][rank]
    due = iter([0, 0, 0, *([40, 40, 60] if rank == 0 else [1, 70, 70])])
    seen = {
        "clock": timed(parallel, folder / "clock", list(own)),
        "own": own_program(rank, folder / "own"),
        "checkpoints": timed(parallel, folder / "checkpoints", [0.1, 0.2, 0.95], clock=lambda: next(due)),
    }
    (folder / f"seen_{rank}.json").write_text(json.dumps(seen))
    parallel.leave()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
