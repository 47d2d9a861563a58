"""Compliance check of a log while it grows."""

from __future__ import annotations

import time
from collections.abc import Callable

from train_bench.core.event import Event
from train_bench.core.job import Job
from train_bench.judge.finding import BREAKS, Finding
from train_bench.judge.live import LiveCheck
from train_bench.observers.observer import Observer


class ViolationLimit(Observer):
    """Reports what `check` finds in the log of `job`; `strict` ends the run at an irreversible rule violation
    (`on_violation=stop`)."""

    def __init__(
        self, check: LiveCheck, job: Job, report: Callable[[Job, Finding], None], *, strict: bool
    ) -> None:
        self.violation: str | None = None
        self._check: LiveCheck | None = check
        self._job, self._report, self._strict = job, report, strict

    def event(self, event: Event) -> None:
        if self._check is not None:
            self._pass_on(self._check.event(event))

    def tick(self) -> str | None:
        if self._check is not None:
            self._pass_on(self._check.waiting(time.time_ns() // 1_000_000))
        if self.violation is None:
            return None
        return f"stopped at a rule violation in its log (on_violation=stop): {self.violation}"

    def retire(self) -> None:
        """Check no more: a run that was started again logs once more what was lost, which the judge knows."""
        self._check = None

    def _pass_on(self, findings: list[Finding]) -> None:
        for finding in findings:
            self._report(self._job, finding)
            if self._strict and finding.grade == BREAKS and self.violation is None:
                self.violation = finding.message
