"""Times that no run can have: a clock in another unit, a date before the round, no initialisation, the target at the
first evaluation, a speed above the one that the log states. All for review: a wrong clock is no broken rule, and no log
proves a speed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta

from train_bench.core.digits import significant
from train_bench.core.finite_number import finite_number
from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import REVIEW, Finding, finding
from train_bench.judge.published import hardware, published_entries
from train_bench.logs.record import RunRecord
from train_bench.progress import Unit
from train_bench.rules.allowed import OPEN
from train_bench.rules.ruleset import BenchmarkRules

FIRST, LAST = datetime(2018, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""MLPerf began in 2018."""

NEAR = 1.15
"""Factor within which an epoch has as many samples in a log as in the data; some leave out incomplete batches."""

STATED, LINES = ("throughput", "imgs_sec"), ("tracked_stats", "throughput")
"""Keys under which third-party logs state their samples per second, by clocks of their own programs."""

MOST_STATED = 1.15
"""Factor by which times may give more samples per second than the log states. Of 6,850 published logs of other
benchmarks with such lines none is above 1.02; four of 3.1 that count samples behind run_stop are at 1.143."""

LARGEST_SPEED = 1e15

AHEAD = timedelta(days=1)
"""Tolerance by which a clock may be ahead of ours."""

UNITS = {"seconds": 1000.0, "microseconds": 1e-3, "nanoseconds": 1e-6}
"""Milliseconds in a number of another unit."""


def check_plausible(case: LogCase) -> Iterator[Finding]:
    """Questions about times of one log."""
    record, rules = case.record, case.rules
    yield from _date(record, rules)
    yield from _no_initialisation(case)
    yield from _target_at_once(record, rules)
    yield from _samples_of_an_epoch(record, rules)
    yield from _stated_speed(case)


def _date(record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    if record.started_ms is None:
        return
    date = _date_of(record.started_ms)
    if date is None or not FIRST <= date < LAST:
        unit = _unit_of(record.started_ms)
        guess = f"; time_ms seems to hold {unit}" if unit else ""
        when = "no date" if date is None else f"of {date:%B %Y}"
        message = f"run_start has the time {record.started_ms}, which is {when} in milliseconds{guess}."
    elif date > datetime.now(UTC) + AHEAD:
        message = f"The run is of {date:%B %Y}, which is yet to come. Was the clock right?"
    elif date < (began := _began(rules.published)):
        message = (
            f"The run is of {date:%B %Y}; runs for {rules.ruleset} are of {began:%B %Y} or later. Was the clock "
            "right?"
        )
    else:
        return
    yield finding(record, rules, "date", message, key="run_start", value=record.started_ms, grade=REVIEW)


def _date_of(time_ms: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _unit_of(time_ms: float) -> str | None:
    """Unit in which a time is a date since MLPerf began."""
    dates = ((unit, _date_of(time_ms * factor)) for unit, factor in UNITS.items())
    return next((unit for unit, date in dates if date is not None and FIRST <= date < LAST), None)


def _began(published: date | None) -> datetime:
    """Runs of the corpus are one to two months older than their publication; a year is allowed."""
    return FIRST if published is None else datetime(published.year - 1, published.month, 1, tzinfo=UTC)


def _no_initialisation(case: LogCase) -> Iterator[Finding]:
    """Initialisation in 0 ms: of 930 published entries none took less than 0.6 s. Programs of users are asked
    elsewhere."""
    if case.record.init_minutes == 0 and not case.of_command:
        message = (
            "init_start and init_stop have the same time; no published run builds its model in 0 ms. Log init_start "
            "before the model is built."
        )
        yield finding(
            case.record, case.rules, "initialisation", message, key="init_stop", value=0, grade=REVIEW
        )


def _samples_of_an_epoch(record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    """Samples of an epoch in the log against those of the data: a published log has batches there."""
    known = published_entries.samples_of(record, rules) if rules.unit is Unit.EPOCH else None
    if not known or not record.samples or 1 / NEAR < record.samples / known < NEAR:
        return
    of_one = published_entries.samples_per_unit(rules) or 0
    logged, due = significant(of_one * record.samples / known, of_one, digits=12)
    message = (
        f"The log counts {logged} samples an epoch, and the data of {rules.name} have {due}; samples and samples per "
        "second of this run are as logged."
    )
    yield finding(
        record, rules, "samples", message, value=round(of_one * record.samples / known), grade=REVIEW
    )


def _stated_speed(case: LogCase) -> Iterator[Finding]:
    """Samples per second by the times of the log against those that its program measured: times that were made shorter
    by a factor, which no other field of third-party logs reveals. Evaluations take time, so that there are fewer."""
    record, rules = case.record, case.rules
    samples = published_entries.samples_of(record, rules)
    if not samples or not record.minutes or record.minutes < 0 or hardware.states_other_unit(rules):
        return
    speeds = []
    for event in case.log.events.of(*LINES):
        named = event.value if isinstance(event.value, Mapping) else {STATED[0]: event.value}
        numbers = (finite_number(named.get(name), below=LARGEST_SPEED) for name in STATED)
        speeds += [number for number in numbers if number is not None and number > 0]
    if not speeds:
        return
    speed, usual = samples / (record.minutes * 60), statistics.median(speeds)
    if speed <= MOST_STATED * usual:
        return
    own, stated = significant(speed, usual)
    message = (
        f"The times of the log give {own} samples/s, and its own lines state {stated} (median of {len(speeds)}). Are "
        "the times right, and do the lines count all accelerators?"
    )
    yield finding(record, rules, "stated_speed", message, value=round(speed / usual, 4), grade=REVIEW)


def _target_at_once(record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    """No run of the corpus reaches the target at its first evaluation."""
    if not record.evaluations or record.division == OPEN:
        return
    first = record.evaluations[0]
    if rules.target.reached(rules.target.quality_of(first.value)):
        message = (
            f"The first evaluation reaches the target ({rules.target}), so the log does not show where it was reached; "
            "was the model trained before?"
        )
        yield finding(
            record, rules, "first_evaluation", message, line=first.line, value=first.value, grade=REVIEW
        )
