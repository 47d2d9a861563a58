"""A run of a user's own program against what train_bench has observed of it from outside (`observed` in the record of
an attempt): its life, its processor time, and the data files that were opened.

A program may delegate its work to other hosts or containers, and take its data from memory or from the network. The
findings state what was observed, and are for review; only times that contradict the life of the program break a rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.core.finite_number import finite_number
from train_bench.judge.checks.campaign_checks import attempts_at
from train_bench.judge.checks.case import EntryCase, ProgramFacts
from train_bench.judge.checks.planned import mapping
from train_bench.judge.finding import REVIEW, Finding, file_finding, finding
from train_bench.judge.locate import Location
from train_bench.logs.record import RunRecord

OBSERVED = "observed"
CLOCK_SECONDS = "clock_seconds"

SHARE, SECONDS = 0.05, 2.5
"""Tolerance between the log and another clock, as for the launching process."""

STEP_SECONDS, WANTED_SHARE = 5e-5, 0.3
"""Processor time of a training step, and share of a run for which its processes want a processor, below which both
together are next to nothing: the call of one kernel takes 5 microseconds, and a step has many; a program with smaller
steps does little else."""

SMALLEST_STEP_SECONDS = 2.5e-5
"""Smallest time of a step where no data were opened."""

BUSY_SHARE = 0.02
"""Share of a run on a machine without accelerators in which its processes compute."""

SHORTEST_SECONDS = 1.0
"""Duration of a run from which on its share can be told."""

COUNTED = 0.1, 0.5
"""Share and seconds by which two readings of processor time differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Observations of one run; None for those that were not possible. `processor_seconds` are of the whole life of its
    processes, `clock_processor_seconds` those after `run_start`, an upper bound. `opened` is the number of data files
    that were opened in `folder`, `held` that of other processes that had some open before. `read_bytes` and
    `written_bytes` are those of all its calls, `shared_memory_bytes` the largest use of /dev/shm beyond that before it,
    `left_processes` those that had to be ended after it."""

    wrote_log: bool
    life_seconds: float | None
    started_ms: float | None
    ended_ms: float | None
    processor_seconds: float | None
    clock_processor_seconds: float | None
    accelerators: float | None
    watched: bool
    opened: float | None
    held: float | None
    clock_seconds: float | None
    read_bytes: float | None
    written_bytes: float | None
    shared_memory_bytes: float | None
    left_processes: float | None


def observed_of(location: Location, index: int) -> Observed | None:
    """Observation of the last attempt at a run; None without one."""
    attempts = attempts_at(location, index)
    seen = mapping(attempts[-1].get(OBSERVED)) if attempts else {}
    if not seen:
        return None
    data = mapping(seen.get("data"))
    started, ended = number(seen.get("started_ms")), number(seen.get("ended_ms"))
    wall = None if started is None or ended is None else (ended - started) / 1000
    spans = [number(seen.get("seconds")), wall]  # a clock may be set; a machine that sleeps stops the other
    return Observed(
        wrote_log=seen.get("wrote_log") is True,
        life_seconds=max((span for span in spans if span is not None), default=None),
        started_ms=started,
        ended_ms=ended,
        processor_seconds=number(seen.get("processor_seconds")),
        clock_processor_seconds=number(seen.get("clock_processor_seconds")),
        accelerators=number(seen.get("accelerators")),
        watched=data.get("watched") is True,
        opened=number(data.get("opened")),
        held=number(data.get("held")),
        clock_seconds=number(attempts[-1].get(CLOCK_SECONDS)),
        read_bytes=number(seen.get("read_bytes")),
        written_bytes=number(seen.get("written_bytes")),
        shared_memory_bytes=number(seen.get("shared_memory_bytes")),
        left_processes=number(seen.get("left_processes")),
    )


def saw_the_clock(seen: Observed, record: RunRecord) -> bool:
    """True if the launching process saw the lines `run_start` and `run_stop` as far apart as the log has them."""
    if seen.clock_seconds is None or record.minutes is None:
        return False
    return abs(seen.clock_seconds - record.minutes * 60) <= SHARE * record.minutes * 60 + SECONDS


def check_life(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """The times of a log against the life of its program."""
    seen = observed_of(case.location, record.index) if case.location.runs_command else None
    if seen is not None and record.minutes is not None:
        yield from _life(seen, record, case)


def check_work(case: EntryCase) -> Iterator[Finding]:
    """Runs of a program with next to no processor time, and those of them that opened no data."""
    if not case.location.runs_command:
        return
    programs = [*case.programs, *[ProgramFacts()] * (len(case.records) - len(case.programs))]
    idle, without_data = [], 0
    for record, program in zip(case.records, programs, strict=True):
        seen = observed_of(case.location, record.index)
        if seen is None or record.minutes is None:
            continue
        yield from _claimed(seen, program, record, case)
        used = _next_to_none(seen, program, record)
        if used is not None:
            idle.append((used, record))
            without_data += seen.opened == 0
    if idle:
        used, example = min(idle, key=lambda one: one[0])
        steps = _steps(example)
        message = (
            f"In {len(idle)} of {len(case.records)} runs the processes of the program used next to no processor time "
            f"on the clock, for example {used:.2f} s in {(example.minutes or 0) * 60:.2f} s for {steps:.0f} training "
            f"steps ({Path(example.file).name}); work of other hosts and containers does not count."
        )
        yield file_finding(case.folder, "processor_time", message, value=used)
    if without_data:
        message = (
            f"In {without_data} of these runs no file of the benchmark's data folder was opened while the program ran, "
            "so it took its data from elsewhere, or trained on none."
        )
        yield file_finding(case.folder, "data", message, value=without_data)


def _life(seen: Observed, record: RunRecord, case: EntryCase) -> Iterator[Finding]:
    window = (record.minutes or 0.0) * 60
    if seen.life_seconds is not None and window > seen.life_seconds * (1 + SHARE) + SECONDS:
        message = (
            f"The log says that the clock ran {window:.1f} s, but its program ran {seen.life_seconds:.1f} s from start "
            "to end; its times are wrong."
        )
        yield finding(record, case.rules, "clock", message, value=window)
        return
    if record.started_ms is None or seen.started_ms is None or seen.ended_ms is None:
        return
    early = (seen.started_ms - record.started_ms) / 1000
    late = (record.started_ms - seen.ended_ms) / 1000 + window
    if max(early, late) > SECONDS:
        where = (
            f"run_start {early:.1f} s before the program started"
            if early > late
            else f"run_stop {late:.1f} s after the program had ended"
        )
        message = f"The log has {where}; was a clock set, or are these the times of another run?"
        yield finding(record, case.rules, "clock", message, value=record.started_ms, grade=REVIEW)


def _claimed(seen: Observed, program: ProgramFacts, record: RunRecord, case: EntryCase) -> Iterator[Finding]:
    """A log that claims more processor time than its processes had."""
    total, (share, seconds) = seen.processor_seconds, COUNTED
    if total is not None and program.ran is not None and program.ran > total * (1 + share) + seconds:
        message = (
            f"{Path(record.file).name} says that the ranks used {program.ran:.2f} s of processor time on the clock, "
            f"but all processes of the program used {total:.2f} s from start to end."
        )
        yield file_finding(case.folder, "processor_time", message, value=program.ran)


def _next_to_none(seen: Observed, program: ProgramFacts, record: RunRecord) -> float | None:
    """Processor time on the clock, the smaller of two readings, if it is next to none."""
    known = [one for one in (seen.clock_processor_seconds, program.ran) if one is not None]
    window, steps = (record.minutes or 0.0) * 60, _steps(record)
    if not known or steps < 1:
        return None
    used = min(known)
    idle = window >= SHORTEST_SECONDS and used < BUSY_SHARE * window and seen.accelerators == 0
    waits = program.waited is not None and used + program.waited < WANTED_SHARE * window
    small = used < STEP_SECONDS * steps and waits
    smallest = used < SMALLEST_STEP_SECONDS * steps and seen.opened == 0
    return used if idle or small or smallest else None


def _steps(record: RunRecord) -> float:
    return (record.samples or 0) / (record.global_batch_size or math.inf)


def number(value: Any) -> float | None:
    """A finite number of a file, else None."""
    found = finite_number(value, below=1e18)
    return None if found is None else float(found)
