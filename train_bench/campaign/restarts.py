"""Restarts of runs that write checkpoints: their processes are killed for fault injection, and started again when
they died. A run whose campaign was ended behind a checkpoint, warned or not, goes on in the next one."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from train_bench.campaign.attempts import can_continue
from train_bench.campaign.failures import PREEMPTED, state_of
from train_bench.core import files, preemption
from train_bench.core.event import Event
from train_bench.core.job import Job
from train_bench.launcher import Death
from train_bench.observers.observer import RestartPolicy
from train_bench.own_trainer.program_log import ProgramLog
from train_bench.plan import fault_plan

MAX_STARTS_WITHOUT_CHECKPOINT = {True: 20, False: 2}
"""Number of starts in a row without a checkpoint after which a run has failed: True after injected faults,
False after other deaths."""


class Restarts(RestartPolicy):
    """Restarts and faults of one run with `checkpoint_seconds`. Its events are those of all its starts."""

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job
        self._clock = clock
        plan = fault_plan.of(job)
        self._plan = plan
        self._times = iter(()) if plan is None else plan.times(job.index)
        self._due = next(self._times, None)
        self._began: float | None = None
        self._launcher: int | None = None
        self._injected_ms: int | None = None
        self._is_over = False
        self._starts = 1
        self._without_checkpoint = {True: 0, False: 0}
        self._unlogged: list[dict[str, Any]] = []
        self._continues = can_continue(job)
        earlier = [*job.ranks_folder.parent.glob(f"{job.ranks_folder.name}_*")]
        if self._continues:
            self._starts += len(earlier)
            began_ms = ProgramLog.of(job.partial_log).started_ms or _now_ms()
            self.earlier_seconds = max(0.0, (_now_ms() - began_ms) / 1000)
            self._began = clock() - self.earlier_seconds
            self._due = next((due for due in self._times if due > self.earlier_seconds), None)
            return
        for folder in (job.checkpoints_folder, *earlier):
            shutil.rmtree(folder, ignore_errors=True)

    def event(self, event: Event) -> None:
        if event.key == "run_start" and self._began is None:
            self._began = self._clock()
        elif event.key == "run_stop":
            self.end()
        elif event.key == "checkpoint_stop":
            self._without_checkpoint = {True: 0, False: 0}
        elif event.key == "run_failed" and event.value in self._unlogged[:1]:
            del self._unlogged[0]

    def end(self) -> None:
        """Stop fault injection and restarts."""
        self._is_over = True
        shutil.rmtree(self._job.checkpoints_folder, ignore_errors=True)

    def started(self, launcher: int) -> None:
        self._launcher, self._injected_ms = launcher, None

    def tick(self) -> None:
        """Inject the due fault: kill the processes that the plan names. Of several times that have passed, one
        counts."""
        if self._plan is None or self._due is None or self._began is None or self._is_over:
            return
        passed = self._clock() - self._began
        if passed < self._due:
            return
        self._due = next(due for due in self._times if due > passed)
        self._injected_ms = _now_ms()
        for process in self._targets():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def interrupted(self) -> float:
        if self._began is None or self._is_over:
            return 0.0
        return preemption.begin_grace(self._job, f"a signal to the campaign on {platform.node()}")

    def goes_on(self) -> str | None:
        if not self._continues:
            return None
        job, log = self._job, ProgramLog.of(self._job.partial_log)
        warning, at_ms = preemption.warning(job), log.last_ms
        states = [state_of(path).get("state") for path in job.ranks_folder.glob("rank_*.json")]
        if PREEMPTED not in states:  # they trained on behind the last line of the log
            with contextlib.suppress(OSError):
                at_ms = max(at_ms, (job.ranks_folder / "heartbeat").stat().st_mtime_ns // 1_000_000)
        how = "its campaign was killed" if warning is None else f"{PREEMPTED} ({warning})"
        return self._prepare(how, None, min(at_ms, _now_ms()), "going on from its checkpoint")

    def again(self, deaths: Sequence[Death]) -> str | None:
        """Prepare another start of a run that ended by `deaths`. Returns a sentence about it; None if the run has
        failed for good, or has not failed."""
        if not deaths or self._began is None or self._is_over:
            return None
        injected = self._injected_ms is not None
        self._without_checkpoint[injected] += 1
        if self._without_checkpoint[injected] >= MAX_STARTS_WITHOUT_CHECKPOINT[injected]:
            self.end()
            return None
        fault = self._plan.text if self._plan is not None and injected else None
        failed_ms = self._injected_ms
        if any(death.how.startswith(PREEMPTED) for death in deaths):  # its log ends with the checkpoint
            failed_ms = ProgramLog.of(self._job.partial_log).last_ms
        return self._prepare("; ".join(map(str, deaths)), fault, failed_ms, "restarting")

    def _prepare(self, how: str, fault: str | None, failed_ms: int | None, step: str) -> str:
        """Prepare the next start after a failure at that time, by default now; returns a sentence about it."""
        job, log = self._job, ProgramLog.of(self._job.partial_log)
        log.cut_half_line()
        now_ms = max(_now_ms(), log.last_ms)
        self._unlogged.append({"time_ms": failed_ms or now_ms, "deaths": how, "planted": fault})
        restart = {"now_ms": now_ms, "failures": self._unlogged}
        files.write_json(job.checkpoints_folder / "restart.json", restart)
        if job.ranks_folder.exists():
            job.ranks_folder.rename(job.ranks_folder.with_name(f"{job.ranks_folder.name}_{self._starts}"))
        self._starts += 1
        cause = "" if fault is None else f" (inject_faults={fault!r})"
        return f"run {job.index}: {how}{cause}; {step} (start {self._starts})"

    def _targets(self) -> list[int]:
        """Process IDs on this host: the rank's, or all if it has not joined yet."""
        assert self._plan is not None
        folder = self._job.ranks_folder
        ranks = {
            path.stem.removeprefix("rank_"): state["pid"]
            for path in folder.glob("rank_*.json")
            if (state := state_of(path)).get("state") == "running"
            and state.get("host") == os.uname().nodename
        }
        launcher = [] if self._launcher is None else [self._launcher]
        if self._plan.what == "launcher":
            return launcher
        if self._plan.what == "rank" and str(self._plan.rank) in ranks:
            return [ranks[str(self._plan.rank)]]
        return [*ranks.values(), *launcher]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
