"""`hosts.json` of a campaign over several hosts that are started by hand: a file in the campaign's folder, on a file
system that all of them share. Host 0 writes the current run; each other host reports the end of its part."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cattrs

from train_bench.core import files
from train_bench.core.job import Job
from train_bench.errors import LogError
from train_bench.launcher import Death
from train_bench.observers.observer import Observer
from train_bench.plan.process import GRACE_SECONDS

POLL_SECONDS = 0.5

REPORT_SECONDS = GRACE_SECONDS + 5.0
"""Seconds that host 0 waits, after a failed run, for reports of the other hosts, which end their processes before."""

OWN_END_SECONDS = 40.0
"""Grace period in seconds of host 0's own processes after another host has failed, in which they can report
the cause: torchrun gives its ranks 30 s."""


INTERRUPTED = "was interrupted"


class Interruption(KeyboardInterrupt):
    """Another host was interrupted, which interrupts the campaign as on host 0; its text is a sentence."""


class HostsFile(Observer):
    """Host 0's side. `others` is the number of other hosts; without any, nothing is written."""

    def __init__(self, folder: Path, *, others: int) -> None:
        self._path = folder / "hosts.json"
        self._others = others
        self._failed_since: float | None = None
        self._job: Job | None = None
        self._launch: str | None = None

    def run_starts(self, job: Job) -> None:
        """Make the others start their part of `job`."""
        self._failed_since, self._job, self._launch = None, job, uuid.uuid4().hex
        self._write({"state": "running", "run": job.index, "launch": self._launch})

    def run_over(self, job: Job, *, failed: bool) -> tuple[Death, ...]:
        """Make the others end the remains of their part. Returns the deaths that they report for a run that failed
        here."""
        self._wait_for_reports(job, REPORT_SECONDS if failed else 0.0)
        self._write({"state": "between runs"})
        return self._deaths_elsewhere(job)

    def wait_for_ends(self, job: Job) -> None:
        """Wait until the others have ended their part of a run, before it is started again."""
        self._wait_for_reports(job, OWN_END_SECONDS)

    def _wait_for_reports(self, job: Job, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(_reports_of(job, self._launch)) < self._others and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _deaths_elsewhere(self, job: Job) -> tuple[Death, ...]:
        return tuple(itertools.chain.from_iterable(_reports_of(job, self._launch)))

    def campaign_over(self, *, interrupted: bool = False) -> None:
        """Make the others end."""
        self._write({"state": "over", "interrupted": interrupted})

    def tick(self) -> str | None:
        """Failures of other hosts, once our own processes had time to detect them themselves."""
        died = self._deaths_elsewhere(self._job) if self._others and self._job is not None else ()
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
    """Last state from host 0: its `state`, and the current `launch` of the current `run`."""
    try:
        content = files.read_json(folder / "hosts.json")
    except LogError:
        content = None
    whole = isinstance(content, dict) and (content.get("state") != "running" or _names_a_run(content))
    return content if whole and "state" in content else {"state": "nothing said"}


def _names_a_run(content: Mapping[str, Any]) -> bool:
    run = content.get("run")
    return type(run) is int and run >= 0 and isinstance(content.get("launch"), str)


def report(job: Job, host: int, died: Sequence[Death], launch: str | None) -> None:
    """Report the end of the part of `host` of this `launch` to host 0; `died` is empty if it ended well."""
    said = {"launch": launch, "deaths": [asdict(death) for death in died]}
    files.write_json(job.ranks_folder / "hosts" / f"{host}.json", said)


def interruption(host: int) -> Death:
    """End of the part of a host by a signal to its `join`, or by its user."""
    return Death(rank=None, how=f"host {host} {INTERRUPTED}")


def interruptions(died: Sequence[Death]) -> list[str]:
    """Interruptions of other hosts among deaths that they report."""
    return [death.how for death in died if death.rank is None and death.how.endswith(INTERRUPTED)]


def _reports_of(job: Job, launch: str | None) -> list[list[Death]]:
    """Reports of the other hosts on a launch; one on the launch before may come late. They have a folder of their own,
    which is quick to list on a remote file system."""
    reports = (_reported(path) for path in sorted((job.ranks_folder / "hosts").glob("*.json")))
    return [report.deaths for report in reports if report.launch == launch]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    launch: str | None
    deaths: list[Death]


def _reported(path: Path) -> _Report:
    try:
        return cattrs.structure(files.read_json(path), _Report)
    except (cattrs.BaseValidationError, TypeError) as error:
        raise LogError(f"{path} has no end state of its host.") from error
