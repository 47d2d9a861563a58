"""Pace of a machine from logs: of a probe of a few blocks, or of whole runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from train_bench.core.event import Event
from train_bench.errors import RequestError
from train_bench.forecast.simulate import Pace
from train_bench.logs.log import Log
from train_bench.logs.record import RunRecord
from train_bench.rules.ruleset import BenchmarkRules

UNSTEADY = 0.12
"""Standard deviation of ln(time of a block) before any measurement, which counts as one block: virtual machines have
0.04 to 0.2, also between runs; dedicated accelerators a hundredth of it."""

_DRAWS = 1000

_BLOCKS = ("block_start", "epoch_start")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Timings of one log, in seconds: before the first block, of a unit in each interval between evaluations, and of
    each timed evaluation."""

    opening: float
    units: tuple[float, ...]
    evaluations: tuple[float, ...]


def measure(record: RunRecord, log: Log, rules: BenchmarkRules) -> Measured:
    """Read the pace of one run. Raises `RequestError` where its clock never ran as far as the first evaluation."""
    start = record.started_ms
    due = rules.schedule_at(record.global_batch_size)
    before = due.start if due else 0.0
    evaluated = [(one.position, one.time_ms) for one in record.evaluations if one.position is not None]
    if start is None or not evaluated or not evaluated[0][0] > before or evaluated[-1][1] <= start:
        raise RequestError(
            f"{record.file} has no evaluation with a position after its run_start, so its pace is unknown; "
            "give a log with at least one."
        )
    began = next(
        (event.time_ms for event in log.events if event.key in _BLOCKS and event.time_ms >= start), start
    )
    spans = _evaluations(log.events, start)
    marks = [(before, began), *evaluated]
    units = [
        max(0.0, (until - since) / 1000 - sum(_inside(span, since, until) for span in spans)) / (to - at)
        for (at, since), (to, until) in pairwise(marks)
        if to > at
    ]
    lengths = tuple((stop - begin) / 1000 for begin, stop in spans)
    return Measured(opening=(began - start) / 1000, units=tuple(units), evaluations=lengths)


def pace(measured: Sequence[Measured], source: str, what: str) -> Pace:
    """Pace of one or more runs; `what` names their source. The first interval of a run, which may start loaders, counts
    only if there is no other."""
    of_runs = [statistics.median(one.units[1:] or one.units) for one in measured]
    unit = statistics.fmean(of_runs)
    if unit <= 0:
        raise RequestError(
            f"{what}: these logs give an invalid pace of {unit:g} s for a unit of training; give other logs."
        )
    stretches = [value for one in measured for value in (one.units[1:] or one.units)]
    evaluations = [value for one in measured for value in one.evaluations]
    within = _spread([one.units[1:] or one.units for one in measured])
    between = _spread([of_runs]) if len(of_runs) > 1 else within
    error = math.hypot(between / math.sqrt(len(of_runs)), within / math.sqrt(len(stretches)))
    notes = []
    if all(len(one.units) == 1 for one in measured):
        notes.append("only the first block of a run was measured; it may be slower than later blocks")
    factor = np.exp(error * np.random.default_rng(20160229).standard_normal(_DRAWS))
    return Pace(
        opening=np.full(_DRAWS, statistics.fmean([one.opening for one in measured])),
        unit=unit * factor,
        evaluation=np.full(_DRAWS, statistics.median(evaluations) if evaluations else 0.0),
        between_runs=between,
        source=source,
        message=f"{what}: {sum(len(one.units) for one in measured)} block(s) of {len(measured)} run(s)",
        notes=tuple(notes),
    )


def stated(samples_per_second: float, evaluation_seconds: float | None, samples_per_unit: float) -> Pace:
    """Pace that a user states, taken as it is."""
    for name, value in (
        ("throughput", samples_per_second),
        ("evaluation seconds", evaluation_seconds or 0.0),
    ):
        if not math.isfinite(value) or value < 0 or (name == "throughput" and value == 0):
            raise RequestError(f"The {name} is {value:g}; give a finite number above 0.")
    notes = (
        ()
        if evaluation_seconds is not None
        else ("evaluations are assumed to take no time; give --evaluation-seconds",)
    )
    return Pace(
        opening=np.zeros(1),
        unit=np.array([samples_per_unit / samples_per_second]),
        evaluation=np.array([evaluation_seconds or 0.0]),
        between_runs=0.0,
        source="stated",
        message=f"{samples_per_second:g} samples per second as given, taken as exact",
        notes=notes,
    )


def _evaluations(events: Sequence[Event], start: int) -> list[tuple[int, int]]:
    spans, opened = [], None
    for event in events:
        if event.key == "eval_start" and opened is None and event.time_ms >= start:
            opened = event.time_ms
        elif event.key == "eval_stop" and opened is not None:
            spans.append((opened, event.time_ms))
            opened = None
    return spans


def _inside(span: tuple[int, int], since: int, until: int) -> float:
    return max(0, min(span[1], until) - max(span[0], since)) / 1000


def _spread(groups: Sequence[Sequence[float]]) -> float:
    """Standard deviation of the logarithms about the mean of each group, with the prior as one more value."""
    square, freedom = UNSTEADY**2, 1
    for group in groups:
        logs = [math.log(max(value, 1e-9)) for value in group]
        square += sum((one - statistics.fmean(logs)) ** 2 for one in logs)
        freedom += len(logs) - 1
    return math.sqrt(square / freedom)
