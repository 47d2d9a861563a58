"""Power logs beside results -> the energy of a run (power rules; the rounds 1.x have none).

`BENCHMARK/power/result_N/node_K.txt` holds the readings of a node in watts between `power_measurement_start`
and `power_measurement_stop`, `sw_K.txt` an estimate of the interconnect. Energy is the mean power over the
measurement, times the conversion efficiency, times the time-to-train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.event import Event
from train_bench.judge import log
from train_bench.judge.record import RunRecord


def energy_of(record: RunRecord) -> float | None:
    """Joules of a run over all its nodes and switches; None without power logs or a time, or where one of the logs
    gives no power."""
    path = Path(record.file)
    folder = path.parent / "power" / path.stem
    nodes, switches = sorted(folder.glob("node_*.txt")), sorted(folder.glob("sw_*.txt"))
    if not nodes or record.minutes is None or record.minutes <= 0:
        return None
    watts = [
        *(_node(log.read(node).events) for node in nodes),
        *(_switch(log.read(sw).events) for sw in switches),
    ]
    known = [value for value in watts if value is not None]
    return sum(known) * record.minutes * 60 if len(known) == len(watts) else None


def kept_energy(records: Sequence[RunRecord], dropped: Sequence[bool]) -> float | None:
    """Mean joules of the runs that the time score keeps; None where one of them has no power logs."""
    joules = [energy_of(record) for record, left_out in zip(records, dropped, strict=True) if not left_out]
    known = [value for value in joules if value is not None]
    return sum(known) / len(known) if known and len(known) == len(joules) else None


def _node(events: Sequence[Event]) -> float | None:
    """Mean watts: each reading holds since the one before it."""
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


def _switch(events: Sequence[Event]) -> float | None:
    estimate = next((event.value for event in events if event.key == "interconnect_power_est"), None)
    watts, efficiency = plain_number(estimate), _efficiency(events)
    return efficiency * watts if watts is not None and efficiency else None


def _efficiency(events: Sequence[Event]) -> float | None:
    """1 where nothing is stated; None where what is stated is none."""
    stated = [event.value for event in events if event.key == "conversion_eff"]
    return plain_number(stated[0]) if stated else 1.0


def plain_number(value: Any) -> float | None:
    """A number that is not negative, or an object that has one as `value`."""
    value = value.get("value") if isinstance(value, Mapping) else value
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18
    return float(value) if plain else None
