"""Power log of one run from a sampler's rows, in the keys of the power rules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

STILL_SECONDS = 3.0
"""Seconds without a change after which a counter has stopped: all of them change several times a second."""

SILENT_SECONDS = 10.0
"""Seconds without a line after which a command has stopped."""

COMMAND = "energy_command"
"""Source name of a user's command."""

NOT_MLPERF = "counters of the host, read by train_bench; not a measurement of MLPerf power"


@dataclass(frozen=True, slots=True)
class Row:
    """Joules of every source at a time in milliseconds since the epoch."""

    time_ms: int
    joules: tuple[float, ...]


@dataclass(slots=True)
class Rows:
    """Rows of a sampler so far: its `first` row, readings, why a counter was `lost`, and its own `cost`."""

    first: Mapping[str, Any] | None
    readings: list[Row]
    lost: str | None = None
    cost: Mapping[str, float] | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources."""
        return tuple(self.first["sources"]) if self.first else ()


def read(path: Path) -> Rows:
    """Complete rows of a file that may grow; empty without the file."""
    rows = Rows(first=None, readings=[])
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return rows
    for line in lines:
        row = json.loads(line)
        if "sources" in row:
            rows = Rows(first=row, readings=[])
        elif "j" in row:
            rows.readings.append(Row(row["t"], tuple(row["j"])))
        else:
            rows.lost = row.get("lost", rows.lost)
            rows.cost = row if "processor_seconds" in row else rows.cost
    return rows


def shifted(rows: Rows, by_ms: int) -> Rows:
    """Rows at other times, those of another host's clock."""
    return replace(rows, readings=[Row(row.time_ms + by_ms, row.joules) for row in rows.readings])


def validate(rows: Rows, begin_ms: int, end_ms: int) -> str | None:
    """Reason why the readings do not give the energy between two times, as a sentence without its end; None if they
    do."""
    if rows.lost is not None and (not rows.readings or rows.readings[-1].time_ms < end_ms):
        return rows.lost
    if not rows.readings or rows.readings[0].time_ms > begin_ms or rows.readings[-1].time_ms < end_ms:
        return "the sampler wrote no readings for a part of it"
    for at, name in enumerate(rows.sources):
        seconds = _still(rows, at, begin_ms, end_ms) / 1000
        if seconds >= min(SILENT_SECONDS if name == COMMAND else STILL_SECONDS, (end_ms - begin_ms) / 1000):
            return f"{name} has stopped: no change for {seconds:.1f} s"
    return None


def _still(rows: Rows, at: int, begin_ms: int, end_ms: int) -> float:
    """Longest time in milliseconds, within the bounds, without a change of a source."""
    longest, since = 0.0, begin_ms
    for before, after in pairwise(rows.readings):
        if after.joules[at] != before.joules[at] or before.time_ms >= end_ms:
            longest = max(longest, min(before.time_ms, end_ms) - since)
            since = max(since, min(after.time_ms, end_ms))
    return max(longest, end_ms - since)


def power_log(rows: Rows, begin_ms: int, end_ms: int, stated: Mapping[str, Any]) -> str:
    """Power log of a run between two times, from one millisecond before to one after. Each reading is the mean power
    since the previous one; `stated` is added to its first line."""
    begin_ms, end_ms = begin_ms - 1, end_ms + 1
    within = [row.time_ms for row in rows.readings if begin_ms < row.time_ms < end_ms]
    times = [begin_ms, *dict.fromkeys(within), end_ms]
    totals = [_total(rows.readings, time_ms) for time_ms in times]
    said = {"source": ", ".join(rows.sources), "what": NOT_MLPERF, **stated}
    lines = [_line("power_measurement_start", "INTERVAL_START", None, begin_ms, said)]
    for (before, after), (one, other) in zip(pairwise(times), pairwise(totals), strict=True):
        watts = max(0.0, (other - one) / (after - before) * 1000)
        lines.append(_line("power_reading", "POINT_IN_TIME", round(watts, 3), after, {}))
    lines.append(_line("power_measurement_stop", "INTERVAL_END", None, end_ms, {}))
    return "".join(lines)


def _total(readings: Sequence[Row], time_ms: int) -> float:
    """Joules of all sources at a time, interpolated linearly between the neighbouring readings."""
    before = next((row for row in reversed(readings) if row.time_ms <= time_ms), readings[0])
    after = next((row for row in readings if row.time_ms >= time_ms), readings[-1])
    one, other = sum(before.joules), sum(after.joules)
    if after.time_ms <= before.time_ms:
        return one
    return one + (other - one) * (time_ms - before.time_ms) / (after.time_ms - before.time_ms)


def _line(key: str, event_type: str, value: Any, time_ms: int, metadata: Mapping[str, Any]) -> str:
    event = {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": event_type,
        "key": key,
        "value": value,
        "metadata": {"file": "train_bench/energy/readings.py", "lineno": 0, **metadata},
    }
    return f":::MLLOG {json.dumps(event)}\n"
