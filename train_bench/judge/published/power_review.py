"""Review of the power logs of an entry: coverage, rate, plausibility. All findings are for review."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from train_bench.core.escape import plain
from train_bench.core.event import Event
from train_bench.judge.checks.ending import malformed
from train_bench.judge.energy import (
    efficiency_of,
    first_problem,
    measurement_window,
    plain_number,
    shown_value,
    without_power,
)
from train_bench.judge.finding import Finding, file_finding
from train_bench.judge.locate import Location
from train_bench.logs import log
from train_bench.logs.log import Log
from train_bench.logs.record import RunRecord

SLOWEST_RATE_S = 1.05
"""Largest median interval between two power readings, in seconds; the rules require at least one reading per
second of the timed part."""

LONGEST_GAP_S = 3.0
FEWEST_READINGS = 60
"""Readings of power; with fewer, the rules suggest a longer measurement."""

CONSTANT = 10
"""Number of equal readings that does not occur by chance."""

LEAST_WATTS, MOST_WATTS = 20, 1_000_000
"""Bounds of the power of a node that trains: no server draws less, no rack draws more."""

LEAST_EFFICIENCY = 0.5
"""Bound of a conversion efficiency: power supplies and converters of servers have 0.8 and more."""

RISING = 0.95
"""Share of increases between readings above which they are those of a counter: power goes up and down."""

UNITS = {1_000: "seconds", 1 / 1_000: "microseconds"}
"""Factors by which times in other units have to be multiplied."""

DAY_S = 86_400


def review_power(location: Location, records: Sequence[RunRecord], nodes: int | None) -> Iterator[Finding]:
    """Check the power logs of an entry that has some."""
    folder = location.folder / "power"
    if not folder.is_dir():
        return
    logs = {record.file: sorted((folder / Path(record.file).stem).glob("node_*.txt")) for record in records}
    without = [file for file, measured in logs.items() if not measured]
    if without:
        named = {Path(file).stem for file in logs}
        others = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in named)
        message = f"{len(without)} of {len(records)} runs have no power/result_N/node_K.txt"
        message += f"; {plain(others[0])} belongs to no run." if others else "."
        yield file_finding(without[0], "power_missing", message, value=len(without))
    owners: dict[str, Path] = {}
    for record in records:
        measured = logs[record.file]
        if measured and nodes is not None and len(measured) != nodes:
            message = (
                f"There are power logs of {len(measured)} node(s), but the system description has {nodes}."
            )
            yield file_finding(str(measured[0].parent), "power_nodes", message, value=len(measured))
        for path in measured:
            read = log.read(path)
            yield from _check_node(read, record)
            owner = owners.setdefault(read.sha256, path) if read.events else path
            if owner != path:
                other = owner.name if owner.parent == path.parent else f"{owner.parent.name}/{owner.name}"
                message = f"The power log is a copy of {plain(other)}; one of the two was not measured."
                yield file_finding(str(path), "power_copy", message)
        for path in sorted((folder / Path(record.file).stem).glob("sw_*.txt")):
            yield from _check_switch(path)


def _check_switch(path: Path) -> Iterator[Finding]:
    """A switch is estimated by `interconnect_power_est`; the official summarizer takes no readings of one."""
    read = log.read(path)
    if not read.events and read.problems:
        yield file_finding(str(path), "power_switch", f"The log of a switch {first_problem(read)}.", value=0)
    elif not any(event.key == "interconnect_power_est" for event in read.events):
        message = (
            "The log of a switch has no interconnect_power_est; the official summarizer counts it as 0 W."
        )
        yield file_finding(str(path), "power_switch", message, key="interconnect_power_est", value=0)


def _check_node(read: Log, record: RunRecord) -> Iterator[Finding]:
    path = str(read.path)
    readings = [
        (event.time_ms / 1000, watts)
        for event in sorted(read.events, key=lambda event: event.time_ms)
        if event.key == "power_reading" and (watts := plain_number(event.value)) is not None
    ]
    for remark in read.remarks:
        yield file_finding(path, "power_format", malformed(remark), line=remark.line, value=remark.count)
    if not readings:
        unreadable = not read.events and read.problems
        why = first_problem(read) if unreadable else without_power(read.events)
        yield file_finding(path, "power_few", f"The power log {why}.", value=0)
        return
    yield from _check_lines(read)
    yield from _check_watts(path, read.events, [watts for _, watts in readings])
    yield from _check_times(path, read.events, [seconds for seconds, _ in readings], record)


def _check_lines(read: Log) -> Iterator[Finding]:
    """Lines that the energy leaves out, and marks that occur more than once."""
    path = str(read.path)
    if read.problems:
        message = f"{len(read.problems)} line(s) cannot be read; the energy leaves them out."
        yield file_finding(
            path, "power_format", message, line=read.problems[0].line, value=len(read.problems)
        )
    unread = [
        event for event in read.events if event.key == "power_reading" and plain_number(event.value) is None
    ]
    if unread:
        message = (
            f"{len(unread)} power_reading without a number of watts, the first of them "
            f"{shown_value(unread[0].value)}; the next reading counts for its time."
        )
        yield file_finding(
            path, "power_reading", message, line=unread[0].line, key="power_reading", value=len(unread)
        )
    for key in ("power_measurement_start", "power_measurement_stop"):
        marks = [event for event in read.events if event.key == key]
        if len(marks) > 1:
            message = (
                f"There are {len(marks)} {key}; the energy is that from the first start to the first stop, and the "
                "official summarizer divides by the time from the last start to the last stop."
            )
            yield file_finding(path, "power_marks", message, line=marks[1].line, key=key, value=len(marks))


def _check_watts(path: str, events: Sequence[Event], watts: Sequence[float]) -> Iterator[Finding]:
    """Readings that no meter of a node gives."""
    rises = sum(after > before for before, after in itertools.pairwise(watts))
    if len(watts) >= FEWEST_READINGS and rises >= RISING * (len(watts) - 1):
        message = (
            f"{rises} of {len(watts)} readings are above the one before, as those of an energy counter are; "
            "power_reading is a power in watts."
        )
        yield file_finding(path, "power_unit", message, key="power_reading", value=rises)
    elif (mean := statistics.fmean(watts)) < LEAST_WATTS or max(watts) > MOST_WATTS:
        shown = f"The mean of the readings is {mean:g} W" if mean < LEAST_WATTS else ""
        shown = shown or f"The largest reading is {max(watts):g} W"
        message = (
            f"{shown}; a node that trains draws {LEAST_WATTS} W to {MOST_WATTS / 1000:g} kW. Check the unit."
        )
        yield file_finding(path, "power_unit", message, key="power_reading", value=mean)
    if len(watts) >= CONSTANT and len({*watts}) == 1:
        message = f"All {len(watts)} readings are {watts[0]:g} W; readings of a power meter vary."
        yield file_finding(path, "power_constant", message, value=watts[0])
    efficiency = efficiency_of(events)
    if efficiency is not None and efficiency < LEAST_EFFICIENCY:
        message = (
            f"conversion_eff is {efficiency:g}; power supplies of servers have {LEAST_EFFICIENCY} at least."
        )
        yield file_finding(path, "power_efficiency", message, key="conversion_eff", value=efficiency)


def _check_times(
    path: str, events: Sequence[Event], times: Sequence[float], record: RunRecord
) -> Iterator[Finding]:
    """Rate, gaps and coverage of the timed part, in the window that the energy is taken from."""
    start_ms, stop_ms = measurement_window(events)
    start_mark = times[0] if start_ms is None else start_ms / 1000
    stop_mark = times[-1] if stop_ms is None else stop_ms / 1000
    if stop_mark <= start_mark:
        message = "power_measurement_stop is not after power_measurement_start; the last reading ends the measurement."
        yield file_finding(path, "power_window", message, key="power_measurement_stop", value=stop_mark)
        stop_mark = times[-1]
    begun, ended = min(start_mark, times[0]), stop_mark
    inside = [seconds for seconds in times if seconds <= ended]
    between = _timed(inside, record)
    if len(times) < FEWEST_READINGS:
        message = (
            f"The power log has {len(times)} readings; the rules suggest a longer measurement below "
            f"{FEWEST_READINGS}."
        )
        yield file_finding(path, "power_few", message, value=len(times))
    if between and statistics.median(between) > SLOWEST_RATE_S:
        message = (
            f"Power was read every {statistics.median(between):.1f} s; the rules require a reading per "
            "second."
        )
        yield file_finding(path, "power_rate", message, value=statistics.median(between))
    gap = max(_timed([begun, *inside, ended], record), default=0.0)
    if gap > LONGEST_GAP_S:
        yield file_finding(path, "power_gap", f"The power log has a gap of {gap:.1f} s.", value=gap)
    if record.started_ms is None or record.minutes is None:
        return
    started, stopped = record.started_ms / 1000, record.started_ms / 1000 + 60 * record.minutes
    if begun > started or ended < stopped:
        late, early = max(0.0, begun - started), max(0.0, stopped - ended)
        message = f"Power was measured from {late:.1f} s after run_start to {early:.1f} s before run_stop."
        if begun > stopped or ended < started:
            message = f"The power log does not overlap the run{_other_clock(begun, started)}."
        yield file_finding(path, "power_window", message, value=[late, early])


def _other_clock(begun: float, started: float) -> str:
    """Distance of a measurement from its run, with the unit that would explain it."""
    for factor, unit in UNITS.items():
        if abs(begun * factor - started) < DAY_S:
            return f": its times are in {unit}, and time_ms is in milliseconds"
    side = "after" if begun > started else "before"
    return f": it starts {abs(begun - started):.1f} s {side} run_start; check the clocks"


def _timed(times: Sequence[float], record: RunRecord) -> list[float]:
    """Intervals between times in seconds, of those that lie in the timed part of a run, or of all if that is
    unknown."""
    pairs = list(itertools.pairwise(times))
    if record.started_ms is not None and record.minutes is not None:
        started = record.started_ms / 1000
        stopped = started + 60 * record.minutes
        pairs = [pair for pair in pairs if pair[1] > started and pair[0] < stopped]
    return [after - before for before, after in pairs]
