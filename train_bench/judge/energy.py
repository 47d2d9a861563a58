"""Energy of a run from the power logs next to its results (power rules; the rounds 1.x have none).

The first line of a power log that a campaign has written itself (`energy=auto`) names the source of the readings,
the idle power of the host, and the number of hosts.

`BENCHMARK/power/result_N/node_K.txt` holds the readings of a node in watts between `power_measurement_start` and
`power_measurement_stop`, `sw_K.txt` an estimate of the interconnect. Energy is the mean power over the measurement,
times the conversion efficiency, times the time-to-train.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from train_bench.core.digits import distinct
from train_bench.core.escape import plain
from train_bench.core.event import Event
from train_bench.core.finite_number import finite_number
from train_bench.logs import log
from train_bench.logs.record import RunRecord

WITHOUT_LOGS = "there are no power logs (power/result_N/node_K.txt) next to the results"
WITHOUT_LOG = "there is no power log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """`joules` of a run, those `above_idle` (None unless an idle power is stated for everything measured, and the
    reason), and the `sources` that campaigns name."""

    joules: float
    above_idle: float | None
    above_idle_reason: str | None
    sources: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self)


def power_folder(result: Path) -> Path:
    """Folder of the power logs of a result."""
    return result.parent / "power" / result.stem


def measure(record: RunRecord) -> Energy | str:
    """Energy of a run, or the reason for which it is unknown."""
    path = Path(record.file)
    folder = power_folder(path)
    nodes, switches = sorted(folder.glob("node_*.txt")), sorted(folder.glob("sw_*.txt"))
    if not nodes:
        return _without_logs(folder)
    if record.minutes is None or record.minutes <= 0:
        return f"{path.name} has no time between run_start and run_stop"
    read = [log.read(path) for path in (*nodes, *switches)]
    unreadable = next((power_log for power_log in read if not power_log.events and power_log.problems), None)
    if unreadable is not None:
        return f"{_place(unreadable.path)} {first_problem(unreadable)}"
    logs = [one.events for one in read[: len(nodes)]]
    watts = [*map(_node, logs), *(_switch(one.events) for one in read[len(nodes) :])]
    places = [_place(power_log) for power_log in (*nodes, *switches)]
    for place, value in zip(places, watts, strict=True):
        if isinstance(value, str):
            return f"{place} {value}"
    stated = [_stated(events) for events in logs]
    hosts = max(plain_number(one.get("nodes")) or 0 for one in stated)
    if hosts > len(nodes):
        return f"{_place(folder)} has logs of {len(nodes)} of {hosts:g} hosts"
    return _over(record.minutes * 60, [value for value in watts if not isinstance(value, str)], logs, places)


def mean_watts(path: Path) -> float | str:
    """Mean watts of a node over its power log, or the reason for which they are unknown."""
    if not os.path.lexists(path):
        return WITHOUT_LOG
    read = log.read(path)
    watts = first_problem(read) if not read.events and read.problems else _node(read.events)
    return f"{path.name} {watts}" if isinstance(watts, str) else watts


def first_problem(unreadable: log.Log) -> str:
    """End of a sentence on a power log without events."""
    problem = unreadable.problems[0]
    return f"cannot be read (line {problem.line}: {problem.message})"


def _over(
    seconds: float, watts: Sequence[float], logs: Sequence[Sequence[Event]], places: Sequence[str]
) -> Energy:
    """Energy of some seconds at these watts; `logs` are those of the nodes, `places` those of nodes and switches."""
    stated = [_stated(events) for events in logs]
    idle = [_idle(events, one) for events, one in zip(logs, stated, strict=True)]
    resting = [value for value in idle if value is not None]
    above = sum(watts) - sum(resting) if len(resting) == len(watts) else None
    without = itertools.zip_longest(places, idle, stated)
    reasons = (f"{place} {_without_idle(one or {})}" for place, value, one in without if value is None)
    reason = next(reasons, None)
    if above is not None and above < 0:
        idle_watts, measured = distinct(sum(resting), sum(watts), decimals=1)
        above, reason = (
            None,
            f"the stated idle power, {idle_watts} W, is above the measured power, {measured} W",
        )
    sources = [source for one in stated if isinstance(source := one.get("source"), str)]
    return Energy(
        joules=sum(watts) * seconds,
        above_idle=None if above is None else above * seconds,
        above_idle_reason=reason,
        sources=tuple(dict.fromkeys(sources)),
    )


def _without_idle(stated: Mapping[str, Any]) -> str:
    """End of a sentence on a log without an idle power."""
    if stated.get("idle_watts") is None:
        return "states no idle power (idle_watts of power_measurement_start)"
    return f"has idle_watts {shown_value(stated['idle_watts'])}, which is not a number of watts"


def _without_logs(folder: Path) -> str:
    if not os.path.lexists(folder.parent):
        return WITHOUT_LOGS
    with contextlib.suppress(OSError):  # that may not be looked at
        if folder.is_dir():
            others = sorted(path.name for path in folder.iterdir())
            return f"{_place(folder)} has no node_K.txt" + (f", but {plain(others[0])}" if others else "")
    return f"there is no folder {_place(folder)}"


def _place(path: Path) -> str:
    """A power log as seen from the folder of the results."""
    return plain(str(path).rpartition("/power/")[1].lstrip("/") + str(path).rpartition("/power/")[2])


def kept_energy(records: Sequence[RunRecord], dropped: Sequence[bool]) -> Energy | str:
    """Means of the runs that the time score keeps, or the reason for which they are unknown."""
    kept = [record for record, left_out in zip(records, dropped, strict=True) if not left_out]
    if not kept:
        return "no run counts"
    known: list[Energy] = []
    for record in kept:
        run = measure(record)
        if isinstance(run, str):
            return run
        known.append(run)
    above = [run.above_idle for run in known if run.above_idle is not None]
    reasons = [run.above_idle_reason for run in known if run.above_idle_reason is not None]
    return Energy(
        joules=fmean(run.joules for run in known),
        above_idle=fmean(above) if len(above) == len(known) else None,
        above_idle_reason=reasons[0] if reasons else None,
        sources=tuple(dict.fromkeys(source for run in known for source in run.sources)),
    )


def _node(events: Sequence[Event]) -> float | str:
    """Mean watts of a node: each reading holds since the one before it. A stop that is not after the start marks no
    end; the last reading does then."""
    ordered = sorted(events, key=lambda event: event.time_ms)
    started, stopped = measurement_window(ordered)
    readings = [
        (event.time_ms, watts)
        for event in ordered
        if event.key == "power_reading" and (watts := plain_number(event.value)) is not None
    ]
    if started is None or not readings:
        return without_power(events)
    end = readings[-1][0] if stopped is None or stopped <= started else stopped
    before, total = started, 0.0
    timed = [(time_ms, watts) for time_ms, watts in readings if started <= time_ms <= end]
    if not timed:
        return "has no power_reading between its start and its stop"
    for time_ms, watts in timed:
        total += watts * (time_ms - before)
        before = time_ms
    efficiency = efficiency_of(events)
    if efficiency is None:
        return _without_efficiency(events)
    return efficiency * total / (end - started) if end > started else "has no reading after its start"


def measurement_window(events: Sequence[Event]) -> tuple[int | None, int | None]:
    """First start and first stop of a measurement in ms; the energy is that between them."""
    times = {
        key: min((event.time_ms for event in events if event.key == key), default=None)
        for key in ("power_measurement_start", "power_measurement_stop")
    }
    return times["power_measurement_start"], times["power_measurement_stop"]


def without_power(events: Sequence[Event]) -> str:
    """Reason for which a power log gives no power, as the end of a sentence."""
    if not events:
        return "has no readable line"
    keys = [event.key for event in events]
    if "power_reading" not in keys:
        return "has no power_reading"
    if "power_measurement_start" not in keys:
        return "has no power_measurement_start"
    first = next(event.value for event in events if event.key == "power_reading")
    return (
        f"has {keys.count('power_reading')} power_reading without a number of watts, the first of them "
        f"{shown_value(first)}"
    )


def _stated(events: Sequence[Event]) -> Mapping[str, Any]:
    """Further fields on the first line of a campaign's own log."""
    return next((event.metadata for event in events if event.key == "power_measurement_start"), {})


def _idle(events: Sequence[Event], stated: Mapping[str, Any]) -> float | None:
    watts, efficiency = plain_number(stated.get("idle_watts")), efficiency_of(events)
    return watts * efficiency if watts is not None and efficiency is not None else None


def _switch(events: Sequence[Event]) -> float | str:
    """Estimated watts of a switch: the first estimate times the efficiency above it, as the official summarizer has
    it; a log without an estimate counts 0 W there."""
    at = next((at for at, event in enumerate(events) if event.key == "interconnect_power_est"), None)
    if at is None:
        return 0.0
    watts, efficiency = plain_number(events[at].value), efficiency_of(events[:at])
    if watts is None:
        return "has an interconnect_power_est without a number of watts"
    return _without_efficiency(events[:at]) if efficiency is None else efficiency * watts


def efficiency_of(events: Sequence[Event]) -> float | None:
    """Conversion efficiency, above 0 and at most 1: 1 if none is stated, else the last; None if it is invalid."""
    stated = [event.value for event in events if event.key == "conversion_eff"]
    value = plain_number(stated[-1]) if stated else 1.0
    return value if value is not None and 0 < value <= 1 else None


def _without_efficiency(events: Sequence[Event]) -> str:
    """End of a sentence on a power log without a valid conversion efficiency."""
    value = [event.value for event in events if event.key == "conversion_eff"][-1]
    return f"has a conversion_eff that is not a number above 0 and at most 1: {shown_value(value)}"


def shown_value(value: Any) -> str:
    """Start of a value of a power log, for a message."""
    return plain(repr(value)[:40])


def plain_number(value: Any) -> float | None:
    """Non-negative number, or an object with one as `value`."""
    value = value.get("value") if isinstance(value, Mapping) else value
    number = finite_number(value, below=1e18)
    return None if number is None or number < 0 else float(number)
