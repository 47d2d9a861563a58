"""Ranks of a run, from lines behind `run_stop`: equal models, and the share of processor time that went to other
processes. Only our own logs have these lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from train_bench.core.digits import distinct, significant
from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import REVIEW, SLOW, Finding, finding
from train_bench.logs.log import Log
from train_bench.logs.record import PROCESSOR_WAIT, SUCCESS, RunRecord, waited_too_briefly
from train_bench.rules.ruleset import BenchmarkRules

REPLICAS = "replicas"

SPEED_BOUND = 1.5
"""Ratio of the fastest run's samples per second to the slowest's above which the score reports a disturbed
machine."""

NO_DISTURBANCE = 100.0
"""Ratio of speeds from which other processes are no explanation: a log is wrong."""

LOST_BOUND = 0.05
"""Share of the ranks' CPU demand that other processes took, above which a machine counts as disturbed
(decision 0083)."""


def check_ranks(case: LogCase) -> Iterator[Finding]:
    """Equal models on all ranks, and an undisturbed machine. A program of the user's own need not log either, but is
    judged by what it logs."""
    record, log, rules = case.record, case.log, case.rules
    world_size, of_command = case.world_size, case.of_command
    yield from _different_models(record, log, rules)
    logged = REPLICAS in log.events.keys
    if record.status == SUCCESS and world_size is not None and (logged or not of_command):
        yield from _not_compared(record, log, rules, world_size)
    yield from _disturbed(record, log, rules, planned=world_size is not None and not of_command)


def _different_models(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    for event in log.events.of(REPLICAS):
        compared = event.value if isinstance(event.value, Mapping) else {}
        if compared.get("equal") is not True:
            message = (
                f"The ranks held different models after the run: {compared.get('differing')} of "
                f"{compared.get('tensors')} tensors differ by up to "
                f"{_number(compared.get('largest_difference'))}, the first is {compared.get('first')!r}."
            )
            yield finding(
                record, rules, REPLICAS, message, line=event.line, key=REPLICAS, value=compared.get("first")
            )
            return


def _not_compared(record: RunRecord, log: Log, rules: BenchmarkRules, world_size: int) -> Iterator[Finding]:
    """Missing comparison of the models. A run whose ranks ended before it is one that failed, not one that broke a
    rule."""
    compared = [event.value for event in log.events.of(REPLICAS)]
    sizes = [one.get("ranks") for one in compared if isinstance(one, Mapping)]
    if world_size == 1 or sizes == [world_size]:
        return
    message = (
        f"It cannot be verified that all {world_size} ranks held the same model (the log needs one "
        f"{REPLICAS} line of {world_size} ranks after run_stop)"
        + ("; the run counts as not converged." if rules.strict else ".")
    )
    yield finding(record, rules, REPLICAS, message, key=REPLICAS, grade=SLOW if rules.strict else REVIEW)


def _disturbed(record: RunRecord, log: Log, rules: BenchmarkRules, *, planned: bool) -> Iterator[Finding]:
    lines = list(log.events.of(PROCESSOR_WAIT))
    if not any(isinstance(event.value, Mapping) for event in lines):
        if lines or (planned and rules.strict and record.status == SUCCESS):
            message = "The log does not have the ranks' wait for CPUs (processor_wait; available on Linux)."
            yield finding(record, rules, PROCESSOR_WAIT, message, key=PROCESSOR_WAIT, grade=REVIEW)
        return
    lost = record.processor_lost
    if (lost is not None and lost <= LOST_BOUND) or waited_too_briefly(lines[0]):
        return
    waited: Mapping[str, Any] = next(event.value for event in lines if isinstance(event.value, Mapping))
    took = "".join(
        f", {what} took {_number(waited.get(field))} s"
        for field, what in (("steal", "the hypervisor"), ("throttled", "limits"))
        if waited.get(field) != 0
    )
    message = (
        f"Disturbed machine: other processes took {_percent(lost)} of the ranks' CPU demand (limit "
        f"{100 * LOST_BOUND:.0f} %). In {_number(waited.get('seconds'))} s the ranks ran "
        f"{_number(waited.get('ran'))} s and waited {_number(waited.get('waited'))} s; others ran "
        f"{_number(waited.get('others'))} s{took}."
    )
    line = lines[0].line
    yield finding(
        record, rules, PROCESSOR_WAIT, message, line=line, key=PROCESSOR_WAIT, value=lost, grade=REVIEW
    )


def disturbance(records: Sequence[RunRecord], timed: Sequence[RunRecord]) -> str | None:
    """Sentence for the score on CPU time that other processes took, else on runs of very different speeds;
    None if both are within their bounds. Speeds are those of the runs that count and whose clocks hold (`timed`)."""
    lost = {
        record.index: record.processor_lost
        for record in records
        if record.processor_lost is not None and record.processor_lost > LOST_BOUND
    }
    if lost:
        runs = f"run{'s' if len(lost) > 1 else ''} {', '.join(map(str, lost))}"
        return (
            f"Disturbed: other processes took up to {_percent(max(lost.values()))} of the ranks' CPU demand "
            f"({runs})."
        )
    speeds = {record.index: speed for record in timed if (speed := record.samples_per_second or 0) > 0}
    slowest, fastest = min(speeds.values(), default=0.0), max(speeds.values(), default=0.0)
    if not SPEED_BOUND * slowest < fastest < NO_DISTURBANCE * slowest:
        return None
    run = min(speeds, key=lambda index: speeds[index])
    slow, fast = (
        f"{speed:.0f}" if speed >= 1e5 else significant(speed, digits=5)[0] for speed in (slowest, fastest)
    )
    ratio, _ = distinct(fastest / slowest, SPEED_BOUND, decimals=1)
    return f"Disturbed: run {run} trained at {slow} samples/s, the fastest run at {fast} ({ratio} times as fast)."


def _number(value: Any) -> str:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return f"{value:.4g}" if known else "unknown"


def _percent(share: float | None) -> str:
    return (
        "an unknown share" if share is None else f"{distinct(100 * share, 100 * LOST_BOUND, decimals=1)[0]} %"
    )
