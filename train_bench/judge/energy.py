"""Energy of a run from the power logs next to its results (power rules; the rounds 1.x have none).

The first line of a power log that a campaign has written itself (`energy=auto`) names the source of the readings,
the idle power of the host, and the number of hosts.

`BENCHMARK/power/result_N/node_K.txt` holds the readings of a node in watts between `power_measurement_start` and
`power_measurement_stop`, `sw_K.txt` an estimate of the interconnect. Energy is the mean power over the measurement,
times the conversion efficiency, times the time-to-train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from train_bench.core.event import Event
from train_bench.logs import log
from train_bench.logs.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """`joules` of a run, those `above_idle` (None unless an idle power is stated for everything measured), and the
    `sources` that campaigns name."""

    joules: float
    above_idle: float | None
    sources: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self)


def energy_of(record: RunRecord) -> Energy | None:
    """Energy of a run over all its nodes and switches; None without power logs or a time, or if one of the logs
    gives no power or is missing."""
    path = Path(record.file)
    folder = path.parent / "power" / path.stem
    nodes, switches = sorted(folder.glob("node_*.txt")), sorted(folder.glob("sw_*.txt"))
    if not nodes or record.minutes is None or record.minutes <= 0:
        return None
    logs = [log.read(node).events for node in nodes]
    watts = [*map(_node, logs), *(_switch(log.read(sw).events) for sw in switches)]
    known = [value for value in watts if value is not None]
    stated = [_stated(events) for events in logs]
    hosts = max(plain_number(one.get("nodes")) or 0 for one in stated)
    if len(known) < len(watts) or hosts > len(nodes):
        return None
    seconds = record.minutes * 60
    idle = [_idle(events, one) for events, one in zip(logs, stated, strict=True)]
    resting = [value for value in idle if value is not None]
    above = sum(known) - sum(resting) if len(resting) == len(watts) else None
    sources = [source for one in stated if isinstance(source := one.get("source"), str)]
    return Energy(
        joules=sum(known) * seconds,
        above_idle=None if above is None else above * seconds,
        sources=tuple(dict.fromkeys(sources)),
    )


def kept_energy(records: Sequence[RunRecord], dropped: Sequence[bool]) -> Energy | None:
    """Means of the runs that the time score keeps; None if one of them has no power logs."""
    runs = [energy_of(record) for record, left_out in zip(records, dropped, strict=True) if not left_out]
    known = [run for run in runs if run is not None]
    if not known or len(known) < len(runs):
        return None
    above = [run.above_idle for run in known if run.above_idle is not None]
    return Energy(
        joules=fmean(run.joules for run in known),
        above_idle=fmean(above) if len(above) == len(known) else None,
        sources=tuple(dict.fromkeys(source for run in known for source in run.sources)),
    )


def _node(events: Sequence[Event]) -> float | None:
    """Mean watts of a node: each reading holds since the one before it."""
    ordered = sorted(events, key=lambda event: event.time_ms)
    started = next((event.time_ms for event in ordered if event.key == "power_measurement_start"), None)
    stopped = next((event.time_ms for event in ordered if event.key == "power_measurement_stop"), None)
    readings = [
        (event.time_ms, watts)
        for event in ordered
        if event.key == "power_reading" and (watts := plain_number(event.value)) is not None
    ]
    if started is None or not readings:
        return None
    end = readings[-1][0] if stopped is None else stopped
    before, total = started, 0.0
    for time_ms, watts in readings:
        if started <= time_ms <= end:
            total += watts * (time_ms - before)
            before = time_ms
    efficiency = _efficiency(events)
    return efficiency * total / (end - started) if end > started and efficiency else None


def _stated(events: Sequence[Event]) -> Mapping[str, Any]:
    """Further fields on the first line of a campaign's own log."""
    return next((event.metadata for event in events if event.key == "power_measurement_start"), {})


def _idle(events: Sequence[Event], stated: Mapping[str, Any]) -> float | None:
    watts, efficiency = plain_number(stated.get("idle_watts")), _efficiency(events)
    return watts * efficiency if watts is not None and efficiency else None


def _switch(events: Sequence[Event]) -> float | None:
    estimate = next((event.value for event in events if event.key == "interconnect_power_est"), None)
    watts, efficiency = plain_number(estimate), _efficiency(events)
    return efficiency * watts if watts is not None and efficiency else None


def _efficiency(events: Sequence[Event]) -> float | None:
    """Conversion efficiency: 1 if none is stated; None if the stated one is invalid."""
    stated = [event.value for event in events if event.key == "conversion_eff"]
    return plain_number(stated[0]) if stated else 1.0


def plain_number(value: Any) -> float | None:
    """Non-negative number, or an object with one as `value`."""
    value = value.get("value") if isinstance(value, Mapping) else value
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18
    return float(value) if plain else None
