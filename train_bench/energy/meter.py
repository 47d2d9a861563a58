"""Energy of a campaign's runs on one host: starts the sampler process and writes the power log of each run."""

from __future__ import annotations

import math
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.core import files, shell_words
from train_bench.core.job import Job
from train_bench.energy import readings, sampler
from train_bench.errors import RequestError, WriteError

SYSFS = Path("/sys")
IDLE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|W)\s*", re.ASCII)
IDLE_SECONDS = 10.0
"""Default of the idle measurement."""

START_SECONDS = 30.0
"""Timeout in seconds for the sampler to find its counters, besides the time of the idle measurement."""

LAST_READING_SECONDS = 10.0
"""Timeout in seconds for the first reading after a run, which a loaded host may delay."""

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyOptions:
    """Energy options of a request: the command that replaces the counters, and the idle power of a host: measured for
    so many seconds, or stated."""

    command: str | None
    idle_seconds: float
    idle_watts: float | None


def parse_options(request: Mapping[str, Any]) -> EnergyOptions | None:
    """Parse the options `energy`, `energy_command` and `energy_idle`; None if nothing is measured. Raises
    `RequestError` for invalid values."""
    command, idle = request.get("energy_command"), str(request.get("energy_idle", f"{IDLE_SECONDS:g} s"))
    if request.get("energy", "off") != "auto":
        if command is not None:
            raise RequestError("energy_command= requires energy=auto; add that, or leave energy_command out.")
        return None
    if command is not None and not isinstance(command, str):
        raise RequestError(f"energy_command is {command!r:.80}; give the words of a program, as in a shell.")
    found = IDLE.fullmatch(idle)
    if found is None or not math.isfinite(float(found[1])):
        raise RequestError(
            f"energy_idle={idle!r:.80} is not an idle power; write '10 s' to measure it before the first run, "
            "or '85 W' if it is known ('0 s': no energy above idle)."
        )
    if command is not None and not shell_words.split(command, "energy_command"):
        raise RequestError("energy_command is empty; give a program that prints power or energy.")
    seconds = float(found[1]) if found[2] == "s" else 0.0
    return EnergyOptions(
        command=command, idle_seconds=seconds, idle_watts=float(found[1]) if found[2] == "W" else None
    )


class Meter:
    """Reads the counters of host number `host` for the runs of a campaign, of `hosts` that are measured.
    Warns once about each problem; a failure never ends a run."""

    def __init__(
        self,
        wished: EnergyOptions | None,
        folder: Path,
        say: Callable[[str], None],
        *,
        host: int = 0,
        hosts: int = 1,
    ) -> None:
        self._wish, self._folder, self._host, self._hosts = wished, folder, host, hosts
        self._tell = say
        self._said: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        # Runs of a campaign may be carried out by several processes at once, on hosts of a job array.
        self._rows = folder / "ranks" / f"energy_{host}_{socket.gethostname()}_{os.getpid()}.jsonl"

    def begin(self) -> None:
        """Start the sampler, and wait until it has measured the idle power."""
        if self._wish is None:
            return
        try:
            self._process = self._started(self._wish)
        except OSError as error:
            self._say(f"energy: {self._where}the sampler could not be started ({error.strerror})")
        else:
            self._tell_beginning(self._first())

    def _started(self, wished: EnergyOptions) -> subprocess.Popen[bytes]:
        self._rows.parent.mkdir(parents=True, exist_ok=True)
        self._rows.unlink(missing_ok=True)
        order = sampler.Order(
            rows=str(self._rows),
            sysfs=str(SYSFS),
            command=wished.command,
            idle_seconds=wished.idle_seconds,
            period_seconds=sampler.PERIOD_SECONDS,
        )
        with self._rows.with_suffix(".stderr").open("wb") as stderr:
            return subprocess.Popen(
                sampler.argv(order),
                stdin=subprocess.PIPE,  # it ends with this process
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def reads(self) -> bool:
        """True if a sampler runs."""
        return self._process is not None

    def run_over(self, job: Job, begin_ms: int | None, end_ms: int | None, *, ahead_ms: int = 0) -> None:
        """Write the power log of a run whose clock counted from one time to another, if it did. The times are those of
        host 0, whose wall clock that of this host is ahead of."""
        if begin_ms is not None and end_ms is not None and end_ms > begin_ms:
            path = _node_file(job, self._host)
            self.write_log(path, begin_ms, end_ms, f"run {job.index + 1}", ahead_ms=ahead_ms)

    def write_log(self, path: Path, begin_ms: int, end_ms: int, measured: str, *, ahead_ms: int = 0) -> None:
        """Write the power log of what was `measured` from one time to another, if a sampler runs."""
        if self._process is None:
            return
        rows = readings.shifted(self._until(end_ms + 1 + ahead_ms), -ahead_ms)
        if not rows.sources:
            return
        why = readings.validate(rows, begin_ms - 1, end_ms + 1)
        if why is not None:
            self._say(f"energy: {self._where}{why}; {measured} and others like it have no energy")
            return
        idle, source = self._idle(rows)
        stated = {"host": socket.gethostname(), "idle_watts": idle, "idle": source, "nodes": self._hosts}
        try:
            files.write(path, readings.power_log(rows, begin_ms, end_ms, stated))
        except WriteError as error:
            self._say(f"energy: {error}")

    def end(self) -> None:
        """End the sampler."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    @property
    def _where(self) -> str:
        return f"on host {self._host}, " if self._hosts > 1 else ""

    def _first(self) -> readings.Rows:
        """First row of the sampler."""
        assert self._wish is not None and self._process is not None
        deadline = time.monotonic() + self._wish.idle_seconds + START_SECONDS
        rows = readings.read(self._rows)
        while rows.first is None and time.monotonic() < deadline and self._process.poll() is None:
            time.sleep(POLL_SECONDS)
            rows = readings.read(self._rows)
        return rows

    def _until(self, end_ms: int) -> readings.Rows:
        """Rows, once one of them lies after the end of a run."""
        deadline = time.monotonic() + LAST_READING_SECONDS
        while True:
            rows = readings.read(self._rows)
            last = rows.readings[-1].time_ms if rows.readings else 0
            if last >= end_ms or rows.lost is not None or time.monotonic() > deadline or not rows.sources:
                return rows
            time.sleep(POLL_SECONDS)

    def _idle(self, rows: readings.Rows) -> tuple[float | None, str]:
        assert self._wish is not None and rows.first is not None
        if self._wish.idle_watts is not None:
            return self._wish.idle_watts, "stated"
        watts = rows.first["idle_watts"]
        if watts is None:
            return None, "not measured"
        return round(watts, 3), f"measured for {self._wish.idle_seconds:g} s before the first run"

    def _tell_beginning(self, rows: readings.Rows) -> None:
        if rows.first is None:
            self._say(
                f"energy: {self._where}the sampler did not start; see {self._rows.with_suffix('.stderr')}"
            )
        elif not rows.sources:
            why = "; ".join(rows.first["reasons"]) or "there is no counter"
            self._say(f"energy: {self._where}no counter is readable: {why}. The runs continue without energy")
        else:
            watts, how = self._idle(rows)
            idle = "" if watts is None else f", idle {watts:.1f} W ({how})"
            lacks = "".join(f"; {reason}" for reason in rows.first["reasons"])
            self._say(f"energy: {self._where}read from {', '.join(rows.sources)}{idle}{lacks}")

    def _say(self, text: str) -> None:
        key = re.sub(r"\d+(\.\d+)? s\b|\brun[ _]\d+\S*", "", text)
        if key not in self._said:
            self._said.add(key)
            self._tell(text.removesuffix(".") + ".")


def discard_readings(job: Job) -> None:
    """Remove the power logs of an earlier attempt at a run, of all hosts."""
    shutil.rmtree(job.folder / "power" / job.result_file.stem, ignore_errors=True)


def _node_file(job: Job, host: int) -> Path:
    return job.folder / "power" / job.result_file.stem / f"node_{host}.txt"
