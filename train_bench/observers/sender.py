"""Sender: the files of a campaign as lines of this process's output, where its folder is not that of the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from train_bench.core import sent_files
from train_bench.core.job import Job
from train_bench.observers.observer import Observer


class Sender(Observer):
    """Sends what is there when a campaign starts, and after each run what is new."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._sent: dict[str, sent_files.Version] = {}

    def campaign_started(self, *, total: int, done: int) -> None:
        """Send what earlier pods have written."""
        self._send()

    def run_ended(self, job: Job, *, failure: str | None) -> None:
        """Send what the run has written."""
        self._send()

    def _send(self) -> None:
        for name, version, content in sent_files.changed(self._folder, sent_files.SENT, self._sent):
            self._sent[name] = version
            for line in sent_files.lines_of(name, content):
                self._say(line)
