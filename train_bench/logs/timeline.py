"""Timeline of a run beyond its record: time by phase, the logged values, the lines that findings cite."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from train_bench.core.event import Event, Events
from train_bench.logs.log import TOKEN, parse_line
from train_bench.logs.record import RunRecord

Span = tuple[int, int]

BLOCKS = ("block", "epoch")
LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Minutes of a run by phase. `init` lies before the clock; the other four add up to the time from `run_start` to
    `run_stop` (to the last line of a log without an end).

    init        from the first `init_start` to `run_start`
    data        from `run_start` to the first block, epoch or evaluation
    train       inside blocks and epochs, without evaluations
    evaluation  from `eval_start` to `eval_stop`; None where the log has none, it is part of `train` then
    other       what is left
    """

    init: float | None
    data: float
    train: float
    evaluation: float | None
    other: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """`phases` is None for a log whose clock never started. `values` holds the distinct values of each key that has any
    as text, `lines` the requested lines, cut to `LONGEST_TEXT` characters."""

    phases: Phases | None
    values: Mapping[str, tuple[str, ...]]
    lines: Mapping[int, str]


def read_timeline(record: RunRecord, content: bytes, cited: Collection[int]) -> Timeline:
    """Read the log of `record` again; keep its `cited` lines. The content is untrusted data."""
    events = Events()
    lines: dict[int, str] = {}
    token = TOKEN.encode()
    for number, raw in enumerate(content.splitlines(), start=1):
        if number in cited:
            lines[number] = raw[: 4 * LONGEST_TEXT].decode("utf-8", errors="replace")[:LONGEST_TEXT]
        if token in raw:
            parsed = parse_line(raw.decode("utf-8", errors="replace"), number)
            if isinstance(parsed, Event):
                events.add(*parsed)
    return Timeline(phases=phases_of(record, events), values=_values(events), lines=lines)


def as_text(value: object) -> str:
    """A JSON value for people: a text as it is, anything else as JSON, cut to `LONGEST_TEXT` characters."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    try:
        return json.dumps(value)[:LONGEST_TEXT]
    except RecursionError:
        return "nested too deeply to be shown"


def _values(events: Iterable[Event]) -> dict[str, tuple[str, ...]]:
    values: dict[str, dict[str, None]] = {}
    for event in events:
        if event.value is not None:
            values.setdefault(event.key, {})[as_text(event.value)] = None
    return {key: tuple(distinct) for key, distinct in values.items()}


def phases_of(record: RunRecord, events: Events) -> Phases | None:
    """Phases of a log; None if its clock never started."""
    begin = record.started_ms
    if begin is None:
        return None
    last = max(events.times, default=begin)
    end = last if record.minutes is None else begin + round(record.minutes * 60_000)
    blocks = [span for kind in BLOCKS for span in _spans(events, kind, begin, end)]
    evaluations = _spans(events, "eval", begin, end)
    evaluating, busy = _length(evaluations), _length([*blocks, *evaluations])
    first = min((start for start, _ in (*blocks, *evaluations)), default=begin)
    init = events.first("init_start")
    opened = None if init is None else init.time_ms
    return Phases(
        init=_minutes(begin - opened) if opened is not None and opened <= begin else None,
        data=_minutes(first - begin),
        train=_minutes(busy - evaluating),
        evaluation=_minutes(evaluating) if "eval_start" in events.keys else None,
        other=_minutes(max(0, end - first - busy)),
    )


def _spans(events: Events, kind: str, begin: int, end: int) -> list[Span]:
    """Intervals from each start to the next stop, clipped to the clock. An open one ends with it."""
    spans: list[Span] = []
    opened: int | None = None
    for event in events.of(f"{kind}_start", f"{kind}_stop"):
        if event.key == f"{kind}_start" and opened is None:
            opened = event.time_ms
        elif event.key == f"{kind}_stop" and opened is not None:
            spans.append((opened, event.time_ms))
            opened = None
    if opened is not None:
        spans.append((opened, end))
    inside = [(max(start, begin), min(stop, end)) for start, stop in spans]
    return [(start, stop) for start, stop in inside if start < stop]


def _length(spans: Iterable[Span]) -> int:
    """Length of the union."""
    total, reached = 0, None
    for start, stop in sorted(spans):
        start = start if reached is None else max(start, reached)
        total += max(0, stop - start)
        reached = stop if reached is None else max(reached, stop)
    return total


def _minutes(milliseconds: int) -> float:
    return milliseconds / 60_000
