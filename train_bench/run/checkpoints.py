"""Checkpoints of a restartable run: written on the clock after an evaluation, two generations, so that one is complete
whenever the run ends, and read by the ranks of the next start. Ranks that are warned of their end write one more
between two steps, and leave.

`latest.json` names the complete generation; `restart.json` is the campaign's record of the processes that died.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from train_bench.core import files
from train_bench.core.job import CHECKPOINT, Job
from train_bench.errors import Preempted
from train_bench.parallel import Parallel
from train_bench.progress import Mark
from train_bench.run.events import Log
from train_bench.run.step_poll import StepPoll
from train_bench.task import Task

GENERATIONS = ("a", "b")
NOTHING: dict[str, Any] = {"generation": None, "evaluations": 0, "samples": 0}


class Checkpoints:
    """Checkpoints of one run, as one rank sees them; every rank makes the same calls. Before the first one is complete,
    a run whose processes died restarts from the beginning.

    failed_ms  when the processes of the start before died, in milliseconds since the epoch; 0 in the first start
    """

    def __init__(self, job: Job, parallel: Parallel, clock: Callable[[], float] = time.monotonic) -> None:
        self._job, self._parallel, self._clock = job, parallel, clock
        self._folder = job.checkpoints_folder
        read = (_read(self._folder / CHECKPOINT), _read(self._folder / "restart.json"))
        latest, restart = parallel.from_rank_zero(read)
        self._latest: dict[str, Any] = latest or NOTHING
        self._failures: list[dict[str, Any]] = restart["failures"] if restart else []
        self.failed_ms: int = restart["now_ms"] if restart else 0
        self._evaluations: int = self._latest["evaluations"]
        self._since = clock()
        self._poll = StepPoll(job, parallel, clock)

    def stop_when_warned(self, task: Task) -> None:
        """Let a task whose blocks are steps end a block early once its ranks are warned."""
        if hasattr(task, "interrupted"):
            task.interrupted = self._poll

    def restore(self, task: Task, log: Log) -> Sequence[Mark]:
        """Build `task` from the checkpoint; returns the remaining marks."""
        for failure in self._failures:
            log.run_failed(failure)
        task.build(self._job.seed, self._parallel)
        if self._latest["generation"] is not None:
            task.load(self._folder / self._latest["generation"])
        self._parallel.barrier()
        return self._job.schedule.marks()[self._evaluations :]

    def begin(self, log: Log) -> bool:
        """Begin or continue training; returns whether the log still lacks the data's lines."""
        if self.failed_ms:
            log.run_restored({name: self._latest[name] for name in ("evaluations", "samples")})
        self._since = self._clock()
        return not self._evaluations

    def save_if_due(self, task: Task, log: Log, mark: Mark, samples: int) -> None:
        """Save a checkpoint if it is due, or the ranks are warned; called after every evaluation but the last."""
        self._evaluations += 1
        waited = self._clock() - self._since
        is_due = waited >= (self._job.checkpoint_seconds or 0.0)
        is_due, self._poll.warning = self._parallel.from_rank_zero((is_due, self._poll.read_warning()))
        if self._poll.warning is not None:
            self.leave(task, log, mark, samples)
        if is_due:
            self._save(task, log, mark, samples)

    def leave(self, task: Task, log: Log, mark: Mark, samples: int) -> NoReturn:
        """Save a checkpoint and raise `Preempted` on every rank: they were warned, and are behind an evaluation or
        within the block up to `mark`."""
        self._save(task, log, mark, samples)
        raise Preempted(self._poll.warning)

    def _save(self, task: Task, log: Log, mark: Mark, samples: int) -> None:
        log.checkpoint_start(mark)
        generation = next(name for name in GENERATIONS if name != self._latest["generation"])
        self._latest = {"generation": generation, "evaluations": self._evaluations, "samples": samples}
        task.save(self._folder / generation)
        if self._parallel.rank == 0:
            for path in (self._folder / generation).iterdir():
                files.sync_file(path)
            files.sync_folder(self._folder / generation)
            files.write_json(self._folder / CHECKPOINT, self._latest)
        self._parallel.barrier()
        log.checkpoint_stop(mark)
        self._since = self._clock()


def _read(path: Path) -> Any:
    return files.read_json(path) if path.exists() else None
