"""Samples of a run: evaluation and training read different data, and ranks took every sample once per epoch. Only
our own logs have these lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from train_bench.core.event import Event
from train_bench.core.finite_number import finite_number
from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import SLOW, Finding, finding
from train_bench.logs.record import SUCCESS, RunRecord
from train_bench.logs.restarts import RESTORED
from train_bench.progress import Unit
from train_bench.rules.ruleset import BenchmarkRules

DATA, ORDER = "data_fingerprint", "order_fingerprint"

COMMON_BOUND = 0.02
"""Share of the evaluation set that may also be found in the training set; honest data have up to 0.002 (two of a
thousand generated texts, 23 of 16,281 people of a census): see decision 0084."""

BY_CHANCE = 3
"""Common samples that are tolerated where only a part of the sets was compared."""


def check_samples(case: LogCase) -> Iterator[Finding]:
    """Disjoint training and evaluation data, and a sample order; both lines are required in a log of our own
    campaigns."""
    record, log, rules = case.record, case.log, case.rules
    planned = case.world_size is not None and not case.of_command
    named = (log.events.first(DATA), log.events.first(ORDER), log.events.first("eval_samples"))
    events = {event.key: event for event in (*named, log.events.last(RESTORED)) if event is not None}
    if planned and rules.strict and record.status == SUCCESS:
        yield from _missing(record, rules, events)
    for key, judged in ((DATA, _data), (ORDER, _order)):
        event = events.get(key)
        if event is not None and event.value is not None:
            try:
                messages = list(judged(record, rules, event.value, events))
            except (KeyError, TypeError, ValueError):
                messages = [f"{key} has an invalid value: {event.value!r:.80}."]
            for message in messages:
                yield finding(record, rules, key, message, line=event.line, key=key)


def _missing(record: RunRecord, rules: BenchmarkRules, events: Mapping[str, Event]) -> Iterator[Finding]:
    """Missing sample lines. A run whose ranks ended behind `run_stop` is one that failed, not one that broke a rule."""
    sized = record.train_samples is not None or "eval_samples" in events
    if DATA not in events or (sized and events[DATA].value is None):
        message = (
            f"It cannot be verified that training and evaluation data are disjoint (the log needs a {DATA} "
            "line)."
        )
        yield finding(record, rules, DATA, message, key=DATA)
    if ORDER not in events or events[ORDER].value is None:
        message = (
            f"The sample order of the ranks cannot be verified (the log needs an {ORDER} line after "
            "run_stop); the run counts as not converged."
        )
        yield finding(record, rules, ORDER, message, key=ORDER, grade=SLOW)


def _data(record: RunRecord, rules: BenchmarkRules, value: Any, events: Mapping[str, Event]) -> Iterator[str]:
    train, evaluation = value["train"], value["evaluation"]
    trained, compared = _count(train, "compared"), _count(evaluation, "compared")
    whole = trained == _count(train, "samples") and compared == _count(evaluation, "samples")
    expected = compared * trained / max(1, _count(train, "samples"))
    common, files = _count(value, "samples_in_common"), _count(value, "files_in_common")
    if files or common > COMMON_BOUND * expected + (0 if whole else BY_CHANCE):
        yield (
            f"Training and evaluation data overlap: {files} common files, and {common} of {compared} "
            f"compared evaluation samples are training samples (limit {100 * COMMON_BOUND:.0f} %)."
        )
    due = events["eval_samples"].value if "eval_samples" in events else None
    size = _count(evaluation, "samples") + _count(evaluation, "left_out")
    if due not in (None, size):
        yield f"The evaluation set has {size} samples, but eval_samples is {due}."
    if record.train_samples is None or rules.unit is Unit.SAMPLE:
        return
    spare = _count(train, "samples") - record.train_samples
    if not 0 <= spare < max(1, record.global_batch_size or 0):
        yield (
            f"The training set has {_count(train, 'samples')} samples, but train_samples is "
            f"{record.train_samples}; the difference may be at most an incomplete batch."
        )


def _order(
    record: RunRecord, rules: BenchmarkRules, value: Any, events: Mapping[str, Event]
) -> Iterator[str]:
    compared, ranks = _count(value, "compared"), _count(value, "ranks")
    if repeated := _count(value, "repeated"):
        yield (
            f"{repeated} of the first {compared} training samples of {ranks} ranks repeat a sample of the "
            "same epoch; over all ranks, each sample occurs once per epoch."
        )
    if "contradicting" in value and (others := _count(value, "contradicting")):
        yield (
            f"{others} rank(s) trained on other samples than the rest of their tensor-parallel group; "
            "ranks of a group take the same samples."
        )
    data = events[DATA].value if DATA in events else None
    if isinstance(data, Mapping):
        evaluated, due = _count(value, "evaluated"), _count(data["evaluation"], "samples")
        if evaluated != due:
            yield f"An evaluation took {evaluated} samples, but the evaluation set has {due}."
        elif again := _count(value, "evaluated_again"):
            yield f"The last evaluation took {again} samples twice; each occurs once."
    if record.samples is not None:
        before = _count(events[RESTORED].value, "samples") if RESTORED in events else 0
        trained = before + _count(value, "trained")
        slack = (record.global_batch_size or 0) + 0.001 * (record.train_samples or 0)
        if abs(trained - record.samples) > slack:
            yield f"Training took {trained} samples, but the last evaluation logs {record.samples:.0f}."


def _count(counts: Any, name: str) -> int:
    value = counts[name]
    if not isinstance(value, int) or finite_number(value) is None or value < 0:
        raise ValueError(f"{name} is not a count")
    return value
