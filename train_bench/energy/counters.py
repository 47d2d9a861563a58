"""Energy counters of a host: accelerators (NVML), processors (RAPL, else hwmon), or a user's command. Every counter
reads joules since its first reading."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from train_bench.core import shell_words
from train_bench.core.parent_death import ending_with_parent
from train_bench.energy.readings import COMMAND

LINE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(W|J)\s*", re.ASCII)
"""Format of a line that a command prints for each reading."""

COMMAND_GRAMMAR = "each line has to be NUMBER W (current power) or NUMBER J (cumulative energy)"

LARGEST_LINE_BYTES = 1_000


class CounterLost(Exception):
    """A counter that stopped; the message is a sentence without a full stop."""


class Counter(Protocol):
    """`name` is the source's name in logs."""

    name: str

    def joules(self, now: float) -> float:
        """Energy since the first reading; `now` is in seconds. Raises `CounterLost`."""


class Total:
    """Energy counter in `unit` joules that wraps to zero after `largest`."""

    def __init__(
        self, name: str, read: Callable[[], float], unit: float, *, largest: float | None = None
    ) -> None:
        self.name, self._read, self._unit, self._largest = name, read, unit, largest
        self._before: float | None = None
        self._total = 0.0

    def joules(self, now: float) -> float:
        """Energy since the first reading, over all wraps."""
        value = _answer(self.name, self._read)
        before = value if self._before is None else self._before
        grown = value - before
        if grown < 0:
            if self._largest is None or before > self._largest:
                raise CounterLost(f"{self.name} decreased from {before:g} to {value:g}")
            grown += self._largest
        self._before = value
        self._total += grown * self._unit
        return self._total


class Power:
    """Power reading in `unit` watts, valid since the previous reading."""

    def __init__(self, name: str, read: Callable[[], float], unit: float) -> None:
        self.name, self._read, self._unit = name, read, unit
        self._before: float | None = None
        self._total = 0.0

    def joules(self, now: float) -> float:
        """Energy since the first reading."""
        watts = _answer(self.name, self._read) * self._unit
        if self._before is not None:
            self._total += watts * (now - self._before)
        self._before = now
        return self._total


class Command:
    """A program that prints a line for each reading until it is ended."""

    name = COMMAND

    def __init__(self, text: str) -> None:
        words = shell_words.split(text, "energy_command")
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=ending_with_parent(signal.SIGKILL),
            )
        except OSError as error:
            raise CounterLost(
                f"energy_command: {words[0]} could not be started ({error.strerror})"
            ) from error
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        self._begun = b""
        self._before: float | None = None
        self._first: float | None = None
        self._total = 0.0

    def wait(self, seconds: float) -> None:
        """Wait at most so long for the first line. Raises `CounterLost` on timeout."""
        if not select.select([self._out], [], [], seconds)[0]:
            raise CounterLost(f"energy_command printed nothing for {seconds:g} s")

    def joules(self, now: float) -> float:
        """Energy since the first reading, as far as printed."""
        for line in self._lines():
            found = LINE.fullmatch(line)
            if found is None:
                raise CounterLost(f"energy_command printed {line[:60]!r}; {COMMAND_GRAMMAR}")
            self._take(float(found[1]), found[2], now)
        return self._total

    def close(self) -> None:
        """End it and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _take(self, value: float, unit: str, now: float) -> None:
        if unit == "W":
            self._total += 0.0 if self._before is None else value * (now - self._before)
            self._before = now
            return
        self._first = value if self._first is None else self._first
        if value - self._first < self._total:
            raise CounterLost(f"energy_command decreased to {value:g} J")
        self._total = value - self._first

    def _lines(self) -> Iterator[str]:
        try:
            read = os.read(self._out, 1 << 16)
        except BlockingIOError:
            return
        if not read:
            raise CounterLost(f"energy_command ended with exit code {self._process.wait()}")
        *whole, self._begun = (self._begun + read).split(b"\n")
        if len(self._begun) > LARGEST_LINE_BYTES:
            raise CounterLost(f"energy_command printed a line of over {LARGEST_LINE_BYTES} bytes")
        for line in whole:
            yield line.decode("ascii", errors="replace")


def find_counters(sysfs: Path, nvml: Any = None) -> tuple[list[Counter], list[str]]:
    """Counters of this host that together cover it without overlap, and reasons for the unavailable ones. `nvml` is the
    module pynvml if it is installed."""
    accelerators, reasons = _accelerators(nvml)
    processors, more = _rapl(sysfs / "class" / "powercap")
    if not processors:
        processors, others = _hwmon(sysfs / "class" / "hwmon")
        more += others
    return [*accelerators, *processors], [*reasons, *more]


def installed_nvml() -> Any:
    """The module pynvml; None where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _accelerators(nvml: Any) -> tuple[list[Counter], list[str]]:
    if nvml is None:
        return [], ["accelerators are not read, because pynvml is not installed"]
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(at) for at in range(nvml.nvmlDeviceGetCount())]
        read: list[Counter] = []
        for at, handle in enumerate(handles):
            read.append(Total(f"NVML {at}", _nvml_reading(nvml, handle), 1e-3))
            read[-1].joules(0.0)
    except (nvml.NVMLError, CounterLost) as error:
        return [], [f"NVML is not available ({error})"]
    return read, []


def _nvml_reading(nvml: Any, handle: Any) -> Callable[[], float]:
    def read() -> float:
        try:
            return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except nvml.NVMLError as error:
            raise OSError(0, str(error)) from error

    return read


def _rapl(folder: Path) -> tuple[list[Counter], list[str]]:
    """RAPL packages and their memory. A package may be listed twice, through another bus of the kernel."""
    zones: dict[str, Path] = {}
    for zone in sorted(folder.glob("*:*"), key=lambda zone: ("mmio" in zone.name, zone.name)):
        name = _said(zone / "name")
        if name.startswith("package"):
            zones.setdefault(name, zone)
        elif name == "dram":
            zones.setdefault(f"dram of {_said(zone.with_name(zone.name.rpartition(':')[0]) / 'name')}", zone)
    return _readable(
        "RAPL",
        (
            (f"RAPL {name}", zone / "energy_uj", _number(zone / "max_energy_range_uj"))
            for name, zone in zones.items()
        ),
        f"there is no RAPL below {folder}",
    )


def _hwmon(folder: Path) -> tuple[list[Counter], list[str]]:
    """Energy of every hwmon device, else mean power. If a processor is listed with its parts, the parts are left
    out."""
    entries = []
    for device in sorted(folder.glob("hwmon*")):
        energies = sorted(device.glob("energy*_input"))
        for path in energies or sorted(device.glob("power*_average")):
            stem = path.name.partition("_")[0]
            label = _said(device / f"{stem}_label") or _said(device / f"{stem}_oem_info")
            entries.append((path, _said(device / "name") or device.name, label or stem))
    whole = any(label.startswith("Grace") for _, _, label in entries)
    parts = ("Ecore", *(("CPU", "SysIO", "Module") if whole else ()))
    named = [
        (f"hwmon {name} {label}", path, None) for path, name, label in entries if not label.startswith(parts)
    ]
    return _readable("hwmon", named, f"there is no power or energy below {folder}")


def _readable(
    kind: str, named: Iterable[tuple[str, Path, float | None]], none: str
) -> tuple[list[Counter], list[str]]:
    """Counters of all these files; none if one cannot be read, because the sum would lack it."""
    counters: list[Counter] = []
    for name, path, largest in named:
        if path.name.startswith("power"):
            counters.append(Power(name, _file_reading(path), 1e-6))
        else:
            counters.append(Total(name, _file_reading(path), 1e-6, largest=largest))
        try:
            counters[-1].joules(0.0)
        except CounterLost as lost:
            return [], [f"{kind} is not read, because {lost}"]
        if isinstance(counters[-1], Power):
            counters[-1] = Power(name, _file_reading(path), 1e-6)
    return counters, [] if counters else [none]


def _file_reading(path: Path) -> Callable[[], float]:
    name = os.fspath(path)

    def read() -> float:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return float(int(os.read(descriptor, 64)))
        finally:
            os.close(descriptor)

    return read


def _answer(name: str, read: Callable[[], float]) -> float:
    try:
        return read()
    except FileNotFoundError as error:
        raise CounterLost(f"{name} has disappeared") from error
    except PermissionError as error:
        raise CounterLost(f"this user may not read {name} (permission denied)") from error
    except OSError as error:
        raise CounterLost(f"{name} cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise CounterLost(f"{name} has no number") from error


def _said(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    text = _said(path)
    return float(text) if text.isdecimal() else None


def joules(counters: Sequence[Counter]) -> list[float]:
    """Joules of each source, now. Raises `CounterLost`."""
    return [counter.joules(time.monotonic()) for counter in counters]
