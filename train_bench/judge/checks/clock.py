"""Clock of one log: start after the initialisation, steps back on the clock, blocks shorter than the others.

Times are read by interval. Lines that several processes write, or a collector gathers, are in no order outside of the
clock: only what lies between `run_start` and `run_stop` is compared line by line.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from train_bench.core.digits import distinct
from train_bench.core.event import Event
from train_bench.core.finite_number import finite_number
from train_bench.judge.finding import REVIEW, Finding, finding
from train_bench.logs.log import Log
from train_bench.logs.record import EVALUATION, PROCESSOR_WAIT, RunRecord
from train_bench.rules.ruleset import BenchmarkRules

TIME = "time"
"""Kind of the findings on a wall clock that does not hold."""

APART_MS = 1000
"""In official rounds, whose logs several processes write, their clocks may differ by so much."""

LONGEST_GAP_SECONDS = 120.0
"""Time from `init_stop` to `run_start` from which on it is a question. Of 188 published logs none has above 97 s."""

ON_THE_CLOCK = frozenset(
    {
        "block_start",
        "block_stop",
        "epoch_start",
        "epoch_stop",
        "eval_start",
        "eval_stop",
        "run_stop",
        *EVALUATION,
    }
)

OF_EVALUATIONS = frozenset({"eval_start", "eval_stop", *EVALUATION})

FEWEST_BLOCKS, ALIKE, NEAR, SHORT = 4, 0.75, 0.2, 2 / 3
"""A block is short of time below `SHORT` of the median of those with as many samples, of which there are
`FEWEST_BLOCKS` or more, if a share of `ALIKE` is within `NEAR` of it. Logs of programs that log blocks as they are
issued, not as they end, have no such median."""

SHORTEST_STEP_SECONDS = 1.0


def restart_lines(log: Log) -> list[int]:
    """Lines of `run_start` of a run that was started again after it had trained; empty for other runs, also for those
    whose start several processes log."""
    stop = log.events.first("run_stop")
    starts = [event.line for event in log.events.of("run_start") if stop is None or event.line < stop.line]
    trained = (event.line for event in log.events.of("block_stop", "epoch_stop", "eval_stop", *EVALUATION))
    return starts if any(starts[0] < line < starts[-1] for line in trained if starts) else []


def check_clock(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """Findings on the clock of a log."""
    yield from _late_start(record, log, rules)
    yield from _steps_back(record, log, rules)
    yield from _negative_initialisation(record, log, rules)
    yield from _short_blocks(record, log, rules)


def evaluates_after_the_clock(record: RunRecord, rules: BenchmarkRules) -> bool:
    """True where the rules let saved checkpoints be evaluated later: the run goes on until one is known to have reached
    the target, and its time ends with that checkpoint."""
    schedule = rules.schedule_at(record.global_batch_size)
    return schedule is not None and schedule.any_order


def timed(record: RunRecord) -> tuple[int, int]:
    """Start and stop of a run that has a time, in milliseconds."""
    started_ms = record.started_ms or 0
    return started_ms, started_ms + round((record.minutes or 0.0) * 60_000)


def _late_start(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """Start of the clock: with the first touch of the data, or when the time of the initialisation is over (rules,
    "Run results")."""
    begun, stopped = log.events.first("init_start"), log.events.first("init_stop")
    if begun is None or stopped is None or record.started_ms is None or log.events.count("run_start") > 1:
        return
    limit = rules.init_minutes.get(str(record.division))
    total, gap = (record.started_ms - begun.time_ms) / 60_000, (record.started_ms - stopped.time_ms) / 60_000
    within = record.init_minutes is not None and limit is not None and record.init_minutes <= limit
    if within and limit is not None and total > limit and gap > APART_MS / 60_000:
        took, allowed = distinct(total, limit, decimals=1)
        message = (
            f"The clock starts {took} minutes after init_start, {gap:.1f} of them after init_stop; the rules start it "
            f"{allowed.removesuffix('.0')} minutes after init_start at the latest."
        )
        yield finding(record, rules, "init", message, key="run_start", value=total)
    elif gap * 60 > LONGEST_GAP_SECONDS:
        message = (
            f"{gap:.1f} minutes lie between init_stop and run_start; the clock starts before any part of the system "
            "touches the data. What happened in between?"
        )
        yield finding(record, rules, "init", message, key="run_start", value=gap, grade=REVIEW)


def _steps_back(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """The largest step back on the clock, and the number of others."""
    timed_lines = list(_on_the_clock(record, log))
    if evaluates_after_the_clock(record, rules) and record.minutes is not None:
        _, stop_ms = timed(record)
        timed_lines = [
            event for event in timed_lines if event.time_ms <= stop_ms and event.key not in OF_EVALUATIONS
        ]
    steps = [(before.time_ms - event.time_ms, event) for before, event in pairwise(timed_lines)]
    back = [step for step in steps if step[0] > 0]
    if not back:
        return
    most, event = max(back, key=lambda step: step[0])
    more = "" if len(back) == 1 else f" (the largest of {len(back)} steps back)"
    message = (
        f"{event.key} is logged at {event.time_ms} ms, {most} ms before the line above it{more}; between run_start and "
        f"run_stop of {Path(record.file).name} timestamps go backwards, so the time cannot be trusted."
    )
    yield finding(record, rules, TIME, message, line=event.line, key=event.key, value=event.time_ms)


def _on_the_clock(record: RunRecord, log: Log) -> Iterator[Event]:
    """Lines from `run_start` to `run_stop`, without those of other processes that were written before the clock."""
    stop = log.events.first("run_stop")
    starts = [event for event in log.events.of("run_start") if stop is None or event.line < stop.line]
    if not starts:
        return
    start = starts[-1]
    for event in log.events:
        inside = event.line >= start.line and (stop is None or event.line <= stop.line)
        if inside and (event.key in ON_THE_CLOCK or event.time_ms >= start.time_ms):
            yield event


def _negative_initialisation(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """An initialisation that ends before it begins, or after the clock has started."""
    apart = 0 if rules.strict else APART_MS
    begun, stopped = log.events.first("init_start"), log.events.first("init_stop")
    start = log.events.first("run_start")
    for before, after in ((begun, stopped), (stopped, start)):
        if before is None or after is None or before.line > after.line:
            continue
        back = before.time_ms - after.time_ms
        if back > apart:
            message = (
                f"{after.key} is logged at {after.time_ms} ms, {back} ms before {before.key}; timestamps of "
                f"{Path(record.file).name} go backwards, so the time cannot be trusted."
            )
            yield finding(record, rules, TIME, message, line=after.line, key=after.key, value=after.time_ms)


def _short_blocks(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """A block, else an epoch, much shorter than the others with as many samples: the clock stepped back within it."""
    for kind in ("block", "epoch"):
        lengths = _lengths(log, kind)
        for blocks in lengths.values():
            usual = statistics.median(seconds for seconds, _, _ in blocks)
            alike = sum(abs(seconds - usual) <= NEAR * usual for seconds, _, _ in blocks)
            if len(blocks) < FEWEST_BLOCKS or alike < ALIKE * len(blocks):
                continue
            seconds, start, stop = min(blocks, key=lambda block: block[0])
            if _confirmed_by_ranks(record, log, usual - seconds):
                continue
            if 0 <= seconds < SHORT * usual and usual - seconds > SHORTEST_STEP_SECONDS:
                message = (
                    f"The {kind} in lines {start.line} to {stop.line} of {Path(record.file).name} took {seconds:.1f} "
                    f"s, and {alike} of {len(blocks)} with as many samples about {usual:.1f} s; a wall clock that "
                    f"steps back by {usual - seconds:.0f} s does this. Was the clock set during the run?"
                )
                yield finding(
                    record, rules, TIME, message, line=stop.line, key=stop.key, grade=REVIEW, value=seconds
                )
                return
        if lengths:
            return


def _confirmed_by_ranks(record: RunRecord, log: Log, step: float) -> bool:
    """True if the ranks' monotonic clock has the window of the log, by less than half a step of its clock: the block
    was short because the machine was less busy."""
    waited = log.events.last(PROCESSOR_WAIT)
    value = waited.value if waited is not None and isinstance(waited.value, Mapping) else {}
    seconds = finite_number(value.get("seconds"))
    return (
        seconds is not None and record.minutes is not None and abs(seconds - record.minutes * 60) < step / 2
    )


def _lengths(log: Log, kind: str) -> dict[object, list[tuple[float, Event, Event]]]:
    """Blocks or epochs by their amount of training: seconds, first and last line. The last may end with the run, before
    its data do: it is left out unless its samples are counted."""
    lengths: dict[object, list[tuple[float, Event, Event]]] = {}
    begun: Event | None = None
    last_stop = log.events.last(f"{kind}_stop")
    for event in log.events.of(f"{kind}_start", f"{kind}_stop"):
        if event.key.endswith("_start"):
            begun = event
        elif begun is not None:
            first, last = begun.metadata.get("samples_count"), event.metadata.get("samples_count")
            counted = isinstance(first, (int, float)) and isinstance(last, (int, float)) and last > first
            amount = last - first if counted else str(begun.metadata.get("epoch_count"))  # type: ignore[operator]
            if counted or (last_stop is not None and event.line < last_stop.line):
                lengths.setdefault(amount, []).append(((event.time_ms - begun.time_ms) / 1000, begun, event))
            begun = None
    return lengths
