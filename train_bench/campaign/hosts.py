"""`hosts.json` of a campaign over several hosts that are started by hand: a file in the campaign's folder,
which all of them see. Host 0 writes there which run is on; each other host reports how its part of it ended."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cattrs

from train_bench.core import files
from train_bench.core.job import Job
from train_bench.errors import LogError
from train_bench.launcher import Death
from train_bench.observers.observer import Observer

POLL_SECONDS = 0.5

REPORT_SECONDS = 10.0
"""How long host 0 waits, after a run that failed, for what the other hosts saw of it."""

OWN_END_SECONDS = 40.0
"""How long host 0 lets its own processes end by themselves once another host has failed, so that they can
say why: torchrun gives its ranks 30 s."""


class HostsFile(Observer):
    """Host 0's side. `others` is how many other hosts take part; without any, nothing is written."""

    def __init__(self, folder: Path, *, others: int) -> None:
        self._path = folder / "hosts.json"
        self._others = others
        self._failed_since: float | None = None
        self._job: Job | None = None

    def run_starts(self, job: Job) -> None:
        """The others start their part of `job`."""
        self._failed_since, self._job = None, job
        self._write({"state": "running", "run": job.index, "launch": uuid.uuid4().hex})

    def run_over(self, job: Job, *, failed: bool) -> tuple[Death, ...]:
        """The others end what is left of their part. Returns what they saw of a run that failed here."""
        deadline = time.monotonic() + (REPORT_SECONDS if failed else 0.0)
        while len(_reports_of(job)) < self._others and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self._write({"state": "between runs"})
        return _deaths_elsewhere(job)

    def campaign_over(self) -> None:
        """The others end."""
        self._write({"state": "over"})

    def tick(self) -> str | None:
        """What failed on other hosts, once our own processes had time to notice it themselves."""
        died = _deaths_elsewhere(self._job) if self._others and self._job is not None else ()
        if not died:
            return None
        if self._failed_since is None:
            self._failed_since = time.monotonic()
        if time.monotonic() - self._failed_since < OWN_END_SECONDS:
            return None
        return "; ".join(str(death) for death in died)

    def _write(self, said: Mapping[str, Any]) -> None:
        if self._others:
            files.write_json(self._path, said)


def said(folder: Path) -> Mapping[str, Any]:
    """What host 0 has written last: its `state`, and which `launch` of which `run` is on."""
    try:
        content = files.read_json(folder / "hosts.json")
    except LogError:
        content = None
    whole = isinstance(content, dict) and (
        content.get("state") != "running" or content.keys() >= {"run", "launch"}
    )
    return content if whole and "state" in content else {"state": "nothing said"}


def report(job: Job, host: int, died: Sequence[Death]) -> None:
    """Tell host 0 how the part of `host` ended; `died` is empty if well."""
    files.write_json(job.ranks_folder / "hosts" / f"{host}.json", [asdict(death) for death in died])


def _reports_of(job: Job) -> list[Path]:
    """They have a folder of their own, which is quick to list on a file system that is far away."""
    return sorted((job.ranks_folder / "hosts").glob("*.json"))


def _deaths_elsewhere(job: Job) -> tuple[Death, ...]:
    return tuple(death for path in _reports_of(job) for death in _reported(path))


def _reported(path: Path) -> tuple[Death, ...]:
    try:
        return tuple(cattrs.structure(files.read_json(path), list[Death]))
    except cattrs.BaseValidationError as error:
        raise LogError(f"{path} does not say how the part of its host ended.") from error
