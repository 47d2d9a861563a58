"""Energy of a campaign's runs on a host, or on those of a step: starts samplers and writes power logs of runs."""

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

from train_bench.core import files, host_clocks, shell_words
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

END_SECONDS = 5.0

STEP_SECONDS = 120.0
"""Timeout for the first samplers of a step, which srun starts on all nodes."""

STEP_END_SECONDS = 15.0


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
        rows: str | None = None,
    ) -> None:
        self._wish, self._folder, self._host, self._hosts = wished, folder, host, hosts
        self._tell = say
        self._said: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        # Runs of a campaign may be carried out by several processes at once, on hosts of a job array.
        name = rows or f"energy_{host}_{socket.gethostname()}_{os.getpid()}.jsonl"
        self._rows = folder / "ranks" / name

    def begin(self) -> None:
        """Start the sampler, and wait until it has measured the idle power."""
        if self._wish is None:
            return
        try:
            self.discard_rows()
            errors = self._rows.with_suffix(".stderr")
            process = _started(self._wish, self._rows, errors, lambda argv: argv)
        except OSError as error:
            self._say(f"energy: {self._where}the sampler could not be started ({error.strerror})")
        else:
            self.follow(process, errors, _deadline(self._wish, START_SECONDS))

    def discard_rows(self) -> None:
        """Remove the rows of an earlier sampler."""
        self._rows.parent.mkdir(parents=True, exist_ok=True)
        self._rows.unlink(missing_ok=True)

    def follow(self, process: subprocess.Popen[bytes], errors: Path, deadline: float) -> None:
        """Read the rows of a sampler, which this process or one of its children is, once there is a first one: until
        a time of the monotonic clock."""
        self._process = process
        self._tell_beginning(self._first(deadline), errors)

    @property
    def hostname(self) -> str:
        """Host of the sampler by the name that it gave."""
        return str((readings.read(self._rows).first or {}).get("host", ""))

    @property
    def reads(self) -> bool:
        """True if a sampler runs."""
        return self._process is not None

    def run_over(
        self,
        job: Job,
        begin_ms: int | None,
        end_ms: int | None,
        *,
        ahead_ms: int = 0,
        deadline: float | None = None,
    ) -> None:
        """Write the power log of a run whose clock counted from one time to another, if it did. The times are those of
        host 0, whose wall clock that of this host is ahead of. The last reading is waited for until `deadline`, a time
        of the monotonic clock."""
        if begin_ms is not None and end_ms is not None and end_ms > begin_ms:
            path = _node_file(job, self._host)
            self.write_log(path, begin_ms, end_ms, f"run {job.index}", ahead_ms=ahead_ms, deadline=deadline)

    def write_log(
        self,
        path: Path,
        begin_ms: int,
        end_ms: int,
        measured: str,
        *,
        ahead_ms: int = 0,
        deadline: float | None = None,
    ) -> None:
        """Write the power log of what was `measured` from one time to another, if a sampler runs."""
        if self._process is None:
            return
        until = _last_reading() if deadline is None else deadline
        rows = readings.shifted(self._until(end_ms + 1 + ahead_ms, until), -ahead_ms)
        if not rows.sources:
            return
        why = readings.validate(rows, begin_ms - 1, end_ms + 1)
        if why is not None:
            self._say(f"energy: {self._where}{why}; {measured} and others like it have no energy")
            return
        idle, source = self._idle(rows)
        stated = {
            "host": (rows.first or {}).get("host"),
            "idle_watts": idle,
            "idle": source,
            "nodes": self._hosts,
        }
        try:
            files.write(path, readings.power_log(rows, begin_ms, end_ms, stated))
        except WriteError as error:
            self._say(f"energy: {error}")

    def end(self) -> None:
        """End the sampler."""
        if self._process is not None:
            _end(self._process, END_SECONDS)
            self._process = None

    @property
    def _where(self) -> str:
        return f"on host {self._host}, " if self._hosts > 1 else ""

    def _first(self, deadline: float) -> readings.Rows:
        """First row of the sampler."""
        assert self._process is not None
        rows = readings.read(self._rows)
        while rows.first is None and time.monotonic() < deadline and self._process.poll() is None:
            time.sleep(POLL_SECONDS)
            rows = readings.read(self._rows)
        return rows

    def _until(self, end_ms: int, deadline: float) -> readings.Rows:
        """Rows, once one of them lies after the end of a run, or none will."""
        assert self._process is not None
        while True:
            is_last = self._process.poll() is not None or time.monotonic() > deadline
            rows = readings.read(self._rows)
            last = rows.readings[-1].time_ms if rows.readings else 0
            if is_last or last >= end_ms or rows.lost is not None or not rows.sources:
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

    def _tell_beginning(self, rows: readings.Rows, errors: Path) -> None:
        if rows.first is None:
            self._say(f"energy: {self._where}the sampler did not start; see {errors}")
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


class StepMeter:
    """Meters of all hosts of a run, whose samplers one command starts: `on_each_host` makes it of that of a sampler.
    Their rows and logs are in the folder that all hosts see."""

    def __init__(
        self,
        wished: EnergyOptions,
        folder: Path,
        say: Callable[[str], None],
        on_each_host: Callable[[tuple[str, ...]], tuple[str, ...]],
        *,
        hosts: int,
    ) -> None:
        self._wish, self._say, self._on_each_host = wished, say, on_each_host
        rows = f"energy_{sampler.HOST}_{socket.gethostname()}_{os.getpid()}.jsonl"
        self._rows = folder / "ranks" / rows
        self._errors = folder / "ranks" / f"energy_step_{socket.gethostname()}_{os.getpid()}.stderr"
        self._meters = [
            Meter(wished, folder, say, host=host, hosts=hosts, rows=rows.replace(sampler.HOST, str(host)))
            for host in range(hosts)
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start the samplers, and wait until they have measured the idle power."""
        try:
            for meter in self._meters:
                meter.discard_rows()
            self._process = _started(self._wish, self._rows, self._errors, self._on_each_host)
        except OSError as error:
            self._say(f"energy: the samplers could not be started ({error.strerror}).")
            return
        deadline = _deadline(self._wish, STEP_SECONDS)  # one for all, which start at the same time
        for meter in self._meters:
            meter.follow(self._process, self._errors, deadline)
            if self._process.poll() is not None:  # one sentence of a step that was refused
                break

    def run_over(self, job: Job, begin_ms: int | None, end_ms: int | None) -> None:
        """Write the power logs of a run, each cut by what the handshake found its host to be ahead of host 0."""
        deadline = _last_reading()  # one for all, which read at the same time
        for meter in self._meters:
            ahead_ms = host_clocks.ahead_ms(job, meter.hostname) if meter.reads else 0
            meter.run_over(job, begin_ms, end_ms, ahead_ms=ahead_ms, deadline=deadline)

    def end(self) -> None:
        """End the samplers."""
        if self._process is not None:
            _end(self._process, STEP_END_SECONDS)
            self._process = None


def _deadline(wished: EnergyOptions, start_seconds: float) -> float:
    """Time of the monotonic clock at which samplers that start now have measured the idle power, or will not."""
    return time.monotonic() + wished.idle_seconds + start_seconds


def _last_reading() -> float:
    """Time of the monotonic clock until which the first reading after a run that is over now is waited for."""
    return time.monotonic() + LAST_READING_SECONDS


def _started(
    wished: EnergyOptions, rows: Path, errors: Path, command: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> subprocess.Popen[bytes]:
    order = sampler.Order(
        rows=str(rows),
        sysfs=str(SYSFS),
        command=wished.command,
        idle_seconds=wished.idle_seconds,
        period_seconds=sampler.PERIOD_SECONDS,
    )
    with errors.open("wb") as stderr:
        return subprocess.Popen(
            command(sampler.argv(order)),
            stdin=subprocess.PIPE,  # it ends with this process
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """End a sampler, or a command that has started several: by its input, by a signal that it passes on, by force."""
    assert process.stdin is not None
    process.stdin.close()
    for force in (process.terminate, process.kill):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            force()
    process.wait()


def discard_readings(job: Job) -> None:
    """Remove the power logs of an earlier attempt at a run, of all hosts."""
    shutil.rmtree(job.folder / "power" / job.result_file.stem, ignore_errors=True)


def _node_file(job: Job, host: int) -> Path:
    return job.folder / "power" / job.result_file.stem / f"node_{host}.txt"
