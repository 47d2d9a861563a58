"""Trackers that a team already uses, W&B and TensorBoard, fed by an observer.

Each tracker is a process of its own next to the launching process; nothing of it is in the ranks. It is fed
through a queue that never blocks. Its errors, including a hang at its end, cost a warning and no run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import queue
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from train_bench.core import software
from train_bench.core.event import Event
from train_bench.core.job import Job
from train_bench.errors import RequestError, UnknownName
from train_bench.logs.log import read
from train_bench.logs.record import EVALUATION
from train_bench.observers.observer import Observer
from train_bench.observers.trackers import TRACKERS, track

if TYPE_CHECKING:
    from train_bench.forecast.live import Forecast

NONE = "none"


def named(trackers: Any) -> tuple[str, ...]:
    """Trackers of `tracking=`: one name, a list of names, or `none`. Raises `RequestError` for an unknown tracker,
    or one that is not installed."""
    names = [trackers] if isinstance(trackers, str) else trackers
    if not isinstance(names, (list, tuple)):
        raise RequestError(
            f"tracking is {names!r}; allowed are {', '.join(TRACKERS)}, a list of them, or {NONE}."
        )
    chosen = tuple(dict.fromkeys(str(name) for name in names if name != NONE))
    for name in chosen:
        if name not in TRACKERS:
            raise UnknownName(what="tracker", name=name, known=[*TRACKERS, NONE])
        if importlib.util.find_spec(name) is None:
            raise RequestError(
                f"tracking={name} needs a package; install it with {software.install_command(name)}."
            )
    return chosen


def places(folder: Path, trackers: Iterable[str]) -> list[str]:
    """Sentence for each tracker of a campaign: where it writes, and the command that shows or uploads it."""
    commands = {"wandb": "wandb sync {}/*run-*", "tensorboard": "tensorboard --logdir {}"}
    at = {name: folder / "tracking" / name for name in trackers}
    return [
        f"tracking: {path} ({commands[name].format(shlex.quote(str(path)))})" for name, path in at.items()
    ]


class Tracking(Observer):
    """Observer that feeds one tracker with the events of the campaign of `jobs`, those of finished runs first.

    `config` is sent as the configuration. `say` prints the warnings. The runs wait until the tracker is ready,
    because its start would take processor time from the first. `forecast` is called at each evaluation of a running
    run. The tracker judges the finished campaign. It has `limit_seconds` until it is ready and again for all its
    work after the last run; then it is ended.
    """

    def __init__(
        self,
        name: str,
        jobs: Sequence[Job],
        config: dict[str, Any],
        *,
        rcp_folders: Sequence[Path],
        online: bool,
        limit_seconds: float,
        say: Callable[[str], None],
        forecast: Callable[[], Forecast | None] = lambda: None,
        target: Callable[..., None] = track,
    ) -> None:
        self._name, self._jobs, self._say, self._limit = name, jobs, say, limit_seconds
        self._messages: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._job: Job | None = None
        self._started_ms = 0
        self._forecast, self._evaluations, self._goes_on = forecast, 0, False
        self._given_up = False
        self._why: str | None = None
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        folder = jobs[0].folder
        self._process = context.Process(
            target=target, args=(name, theirs, folder, config, rcp_folders, online), name=f"tracker {name}"
        )
        self._theirs = theirs

    def campaign_started(self, *, total: int, done: int) -> None:
        """Start the tracker, wait until it is ready and send it the runs that have a result already."""
        self._process.start()
        self._theirs.close()
        if not self._ours.poll(self._limit):
            self._give_up(f"was not ready after {self._limit:g} s")
            self._ours.close()
            return
        self._why = self._receive_state()
        threading.Thread(target=_hand_over, args=(self._messages, self._ours), daemon=True).start()
        for job in self._jobs:
            if job.result_file.exists():
                self.run_started(job)
                for event in read(job.result_file).events:
                    self.event(event)
        self._goes_on = True

    def run_started(self, job: Job) -> None:
        self._job, self._started_ms = job, 0
        self._messages.put(("run", job.index, job.seed))

    def event(self, event: Event) -> None:
        """A new line of the run's log; evaluations are sent."""
        if event.key == "run_start":
            self._started_ms = event.time_ms
        if self._job is None or event.key not in EVALUATION:
            return
        evaluation = _evaluation(self._job, event)
        if evaluation is not None:
            minutes = (event.time_ms - self._started_ms) / 60_000
            self._messages.put(("quality", self._job.index, *evaluation, minutes, event.time_ms / 1000))
            self._evaluations += 1
            forecast = self._forecast() if self._goes_on else None
            if forecast is not None:
                values = _expected(forecast, event.time_ms)
                self._messages.put(("forecast", self._evaluations, values, event.time_ms / 1000))

    def run_ended(self, job: Job, *, failure: str | None) -> None:
        self._job = None
        if failure:
            self._messages.put(("failure", job.index, failure))

    def campaign_ended(self) -> None:
        """Give the tracker its time to judge and to finish; warn if it needs more, or has failed."""
        if self._given_up:
            return
        self._messages.put(("end",))
        self._messages.put(None)
        self._process.join(self._limit)
        if self._process.is_alive():
            self._give_up(f"was not finished {self._limit:g} s after the last run")
        elif self._process.exitcode:
            why = self._why or self._receive_state() or f"it ended with {self._process.exitcode}"
            self._say(f"tracking with {self._name} failed, results are not affected: {why}")
        self._ours.close()

    def _give_up(self, why: str) -> None:
        self._given_up = True
        _kill(self._process)
        self._say(
            f"tracking with {self._name} {why} and was stopped; results are not affected "
            "(tracking_limit_seconds)"
        )

    def _receive_state(self) -> str | None:
        """State of the tracker: None when it is ready, else the reason of its failure."""
        with contextlib.suppress(EOFError, OSError):
            if self._ours.poll():
                return cast("str | None", self._ours.recv())
        return None


def _expected(forecast: Forecast, time_ms: int) -> dict[str, float]:
    """Minutes left and probability of a passed RCP test, from a forecast."""
    names = ("minutes_left", "lower", "upper")
    values = {
        name: max(0.0, end - time_ms) / 60_000 for name, end in zip(names, forecast.campaign, strict=True)
    }
    return values if forecast.passes is None else values | {"reference_check_passes": forecast.passes}


def _evaluation(job: Job, event: Event) -> tuple[float, int, dict[str, float]] | None:
    """Position, the same in the unit of the task (samples, or generations), and metrics."""
    position = event.metadata.get("epoch_num")
    if not isinstance(position, (int, float)):
        return None
    count = next((mark.count for mark in job.schedule.marks() if mark.epoch_num == position), round(position))
    return position, count, dict(job.target.quality_of(event.value).metrics)


def _hand_over(messages: queue.SimpleQueue[tuple[Any, ...] | None], pipe: Connection) -> None:
    """Feed the pipe in a thread of its own, because a pipe to a process that hangs fills and blocks."""
    with contextlib.suppress(OSError):
        while (message := messages.get()) is not None:
            pipe.send(message)


def _kill(process: Any) -> None:
    """Kill the tracker's session, and so everything that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()
