"""Interface of all observers of a campaign: in the launching process, never on the clock or in the ranks."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.core.event import Event
from train_bench.core.job import Job
from train_bench.judge.finding import Finding
from train_bench.launcher import Death


class Observer:
    """An observer that does nothing; a subclass overrides the calls that it needs."""

    def campaign_started(self, *, total: int, done: int) -> None:
        """`done` of `total` runs have a result already."""

    def run_started(self, job: Job) -> None:
        """A run is being launched."""

    def event(self, event: Event) -> None:
        """A new line of the run's log."""

    def finding(self, job: Job, finding: Finding) -> None:
        """An irreversible rule violation in the growing log, or a finding for review."""

    def tick(self) -> str | None:
        """A few times a second while a run goes on. Returns the reason to end the run now, None to go on."""
        return None

    def run_ended(self, job: Job, *, failure: str | None) -> None:
        """A run has ended, well or with the `failure` of its processes."""

    def campaign_ended(self) -> None:
        """No more runs."""


class RestartPolicy(Observer):
    """Restarts of one run after failures; here, none.

    earlier_seconds  on the clock of the run when this process began to watch it
    """

    earlier_seconds = 0.0

    def interrupted(self) -> float:
        """This process is asked to end. Returns the seconds for which its ranks may go on; they have been told."""
        return 0.0

    def started(self, launcher: int) -> None:
        """The process ID of the current launching process of the ranks."""

    def goes_on(self) -> str | None:
        """A sentence about a run that goes on behind the checkpoint of an earlier process; None if it begins."""
        return None

    def again(self, deaths: Sequence[Death]) -> str | None:
        """Prepare another start of a run that ended by `deaths`. Returns a sentence about it; None if the run has
        failed for good, or has not failed."""
        return None


class Observers(Observer):
    """Several observers as one, called in their order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def campaign_started(self, *, total: int, done: int) -> None:
        for observer in self._observers:
            observer.campaign_started(total=total, done=done)

    def run_started(self, job: Job) -> None:
        for observer in self._observers:
            observer.run_started(job)

    def event(self, event: Event) -> None:
        for observer in self._observers:
            observer.event(event)

    def finding(self, job: Job, finding: Finding) -> None:
        for observer in self._observers:
            observer.finding(job, finding)

    def tick(self) -> str | None:
        """Every observer is called; the first reason counts."""
        reasons = [observer.tick() for observer in self._observers]
        return next(filter(None, reasons), None)

    def run_ended(self, job: Job, *, failure: str | None) -> None:
        for observer in self._observers:
            observer.run_ended(job, failure=failure)

    def campaign_ended(self) -> None:
        for observer in self._observers:
            observer.campaign_ended()
