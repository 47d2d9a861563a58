"""Sender: the files of a campaign as lines of this process's output, where its folder is not that of the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

from train_bench.core import sent_files
from train_bench.core.job import Job
from train_bench.observers.observer import Observer

RUN = re.compile(r"(?:result|record|run)_(\d+)")


class Sender(Observer):
    """Sends what is there when a campaign starts, and what is new after each run and at the end: of all runs,
    or of `only` some."""

    def __init__(self, folder: Path, say: Callable[[str], None], only: Collection[int] | None = None) -> None:
        self._folder, self._say, self._only = folder, say, only
        self._sent: dict[str, sent_files.Version] = {}

    def campaign_started(self, *, total: int, done: int) -> None:
        """Send what earlier pods have written."""
        self._send()

    def run_ended(self, job: Job, *, failure: str | None) -> None:
        """Send what the run has written."""
        self._send()

    def campaign_ended(self) -> None:
        """Send the rest: the energy of a run is written after its end."""
        self._send()

    def _send(self) -> None:
        for name, version, content in sent_files.changed(self._folder, sent_files.SENT, self._sent):
            self._sent[name] = version
            run = RUN.search(name)
            if self._only is not None and run is not None and int(run[1]) not in self._only:
                continue  # another pod sends it
            for line in sent_files.lines_of(name, content):
                self._say(line)
