"""Failures of a run in its log: lost work, and the costs of failures, restarts and checkpoints.

A run that writes checkpoints (`checkpoint_seconds`) and whose processes died goes on in the same log, whose clock has
not stopped. `run_failed` has cause and time of the death, `run_restored` the number of evaluations after which training
goes on; the blocks and evaluations logged between those and this line are lost work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from train_bench.core.event import Event, Events
from train_bench.logs.log import Log

FAILED, RESTORED = "run_failed", "run_restored"
SAVING, SAVED = "checkpoint_start", "checkpoint_stop"
OWN = frozenset({FAILED, RESTORED, SAVING, SAVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Totals of `runs` runs, in seconds on their clocks.

    seconds             from run_start to run_stop
    lost_seconds        training that failures destroyed
    restart_seconds     from failures until training went on
    last_restarts       of these, since the last failure before training went on, which it did `restored` times
    checkpoint_seconds  writing checkpoints
    interval_seconds    training between checkpoints that were written
    """

    runs: int
    failures: int
    restored: int
    checkpoints: int
    seconds: float
    lost_seconds: float
    restart_seconds: float
    last_restarts: float
    checkpoint_seconds: float
    interval_seconds: float

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON: counts of all runs, the mean seconds of a run, and the cost of one checkpoint,
        one interval and one restart."""
        useful = self.seconds - self.lost_seconds - self.restart_seconds - self.checkpoint_seconds
        return {
            "runs": self.runs,
            "failures": self.failures,
            "checkpoints": self.checkpoints,
            "seconds": self.seconds / self.runs,
            "useful_seconds": useful / self.runs,
            "lost_seconds": self.lost_seconds / self.runs,
            "restart_seconds": self.restart_seconds / self.runs,
            "checkpoint_seconds": self.checkpoint_seconds / self.runs,
            "goodput": useful / self.seconds if self.seconds > 0 else None,
            "interval": self.interval_seconds / self.checkpoints if self.checkpoints else None,
            "checkpoint": self.checkpoint_seconds / self.checkpoints if self.checkpoints else None,
            "restart": self.last_restarts / self.restored if self.restored else None,
        }


def without_lost_work(read: Log) -> Log:
    """The log without its lost work; unchanged if there is none."""
    if RESTORED not in read.events.keys:
        return read
    kept: list[Event] = []
    ends: list[int] = []  # length of `kept` at the start of the clock, and after each evaluation
    for event in read.events:
        evaluations = _whole(event.value, "evaluations") if event.key == RESTORED else None
        if evaluations is not None and evaluations < len(ends):
            own = [lost for lost in kept[ends[evaluations] :] if lost.key in OWN]
            kept[ends[evaluations] :] = own
            del ends[evaluations + 1 :]
            ends[evaluations] = len(kept)
        kept.append(event)
        if event.key == "eval_stop" or (event.key == "run_start" and not ends):
            ends.append(len(kept))
    return replace(read, events=Events(kept))


def restarts_of(read: Log) -> Restarts | None:
    """Costs of failures and checkpoints of a run; None if it had neither, or has no end."""
    if OWN.isdisjoint(read.events.keys):
        return None
    start, stop = read.events.first("run_start"), read.events.first("run_stop")
    if start is None or stop is None:
        return None
    since = start.time_ms
    failed_at = last_failed = saving = None
    failures = restored = checkpoints = lost = restarting = last = writing = training = 0
    for event in read.events.of(*OWN):
        if event.key == FAILED:
            failures += 1
            last_failed = _whole(event.value, "time_ms") or event.time_ms
            if failed_at is None:
                failed_at, saving = last_failed, None
                lost += failed_at - since
        elif event.key == RESTORED and failed_at is not None and last_failed is not None:
            restored += 1
            restarting += event.time_ms - failed_at
            last += event.time_ms - last_failed
            failed_at, since = None, event.time_ms
        elif event.key == SAVING:
            saving = event.time_ms
        elif event.key == SAVED and saving is not None:
            checkpoints += 1
            training += saving - since
            writing += event.time_ms - saving
            saving, since = None, event.time_ms
    return Restarts(
        runs=1,
        failures=failures,
        restored=restored,
        checkpoints=checkpoints,
        seconds=(stop.time_ms - start.time_ms) / 1000,
        lost_seconds=lost / 1000,
        restart_seconds=restarting / 1000,
        last_restarts=last / 1000,
        checkpoint_seconds=writing / 1000,
        interval_seconds=training / 1000,
    )


def together(runs: Iterable[Restarts | None]) -> Restarts | None:
    """Sum over the runs that have any; None if none has."""
    known = [asdict(run) for run in runs if run is not None]
    return Restarts(**{name: sum(run[name] for run in known) for name in known[0]}) if known else None


def _whole(value: Any, name: str) -> int | None:
    number = value.get(name) if isinstance(value, dict) else None
    plain = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 10**18
    return number if plain else None
