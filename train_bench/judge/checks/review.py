"""Review of one log beyond the rule files: order, times, blocks, schedule, end.

Official checkers have none of these checks, and accepted logs break some of them, so in official rounds these
findings are for review. In a strict round they are rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from train_bench.core.digits import distinct
from train_bench.core.event import Event
from train_bench.judge.checks.case import LogCase
from train_bench.judge.checks.clock import (
    APART_MS,
    check_clock,
    evaluates_after_the_clock,
    restart_lines,
    timed,
)
from train_bench.judge.checks.ending import status_in_words
from train_bench.judge.finding import BREAKS, REVIEW, SLOW, Finding, finding
from train_bench.logs.log import Log
from train_bench.logs.record import DIED, SUCCESS, TRAIN_SAMPLES, Evaluated, RunRecord
from train_bench.progress import EvalSchedule
from train_bench.quality import Quality, Target
from train_bench.rules.allowed import OPEN
from train_bench.rules.ruleset import BenchmarkRules
from train_bench.rules.schedule import ScheduleRule

TRAINED = frozenset({"block_stop", "epoch_stop", "eval_stop", "eval_accuracy"})
TRAINING = TRAINED | {"block_start", "epoch_start", "eval_start"}
ENDS = frozenset({"block_stop", "epoch_stop", "eval_stop"})
EVALUATES = frozenset({"eval_start", "eval_stop", "eval_accuracy"})
POSITIONS = ("epoch_num", "samples_count", "step_num")

SHORTEST_MINUTES = 1 / 60
"""No published result of an official round is as short: opening the data and starting the ranks takes longer. A small
trainer of somebody's own may be."""


def review(case: LogCase) -> list[Finding]:
    """All findings of one log that no rule file makes."""
    record, log, rules = case.record, case.log, case.rules
    return [
        *_another_benchmark(record, rules),
        *_warm_caches(record, log, rules),
        *initialisation(record, rules),
        *check_clock(record, log, rules),
        *_no_time(record, log, rules),
        *_outside(record, log, rules),
        *_blocks(record, log, rules),
        *_repeated(record, rules),
        *schedule(record, rules),
        *_impossible(record, rules),
        *_target(record, log, rules),
    ]


def _another_benchmark(record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    if record.benchmark not in (rules.name, None):
        message = (
            f"This log is of {record.benchmark}, but the entry is of {rules.name}; move it out of the folder."
        )
        key = "submission_benchmark"
        yield finding(record, rules, "benchmark", message, key=key, value=record.benchmark)


def _warm_caches(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    warm = [event for event in log.events.of("cache_clear") if event.value is not True]
    if warm and not rules.uncleared_cache_allowed:
        message = f"cache_clear is {warm[0].value!r}: the run began with warm caches, which {rules.ruleset} forbids."
        yield finding(record, rules, "cache_clear", message, line=warm[0].line, key="cache_clear")


def initialisation(record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    """Time limit of the initialisation before the clock starts (rules, "Run results")."""
    limit = rules.init_minutes.get(str(record.announced.get("submission_division")))
    if limit is not None and record.init_minutes is not None and record.init_minutes > limit:
        took, allowed = distinct(record.init_minutes, limit, decimals=1)
        message = (
            f"Initialisation took {took} minutes; the rules allow {allowed.removesuffix('.0')} before the clock "
            f"starts."
        )
        yield finding(record, rules, "init", message, key="init_stop", value=record.init_minutes)


def _no_time(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """Missing or implausible time. A run without a time, or whose time holds no training, is no result in any round.
    One that is only very short is for review: nothing in its log gives the speed of its system."""
    if record.status == DIED:
        return
    if record.minutes is None:
        message = "No run_start before run_stop; the run has no time-to-train."
        yield finding(record, rules, "no_time", message, key="run_start", grade=BREAKS)
        return
    if record.minutes <= 0:
        message = f"run_stop is {-record.minutes:.6f} minutes before run_start; it has to be after it."
        if record.minutes == 0:
            message = "run_start and run_stop have the same time; run_stop has to be after run_start."
        yield finding(record, rules, "no_time", message, key="run_stop", value=record.minutes, grade=BREAKS)
        return
    start_ms, stop_ms = timed(record)
    trained = not TRAINED.isdisjoint(log.events.keys)
    if trained and not any(start_ms <= event.time_ms <= stop_ms for event in log.events.of(*TRAINED)):
        message = (
            f"No block, epoch or evaluation ends in the {record.minutes:.6f} minutes between run_start and "
            "run_stop; the timed interval has no training."
        )
        yield finding(record, rules, "no_time", message, key="run_stop", value=record.minutes, grade=BREAKS)
    elif rules.generated is None and record.minutes < SHORTEST_MINUTES:
        message = f"The run took {record.minutes * 60_000:.0f} ms; no published result is as short."
        yield finding(record, rules, "short", message, key="run_stop", value=record.minutes, grade=REVIEW)


def _outside(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """Training and evaluation outside of `run_start` to `run_stop`. Before `run_start` there is none in any round,
    except for an evaluation of the weights that no sample has trained, which is for review; after `run_stop` they are
    for review, because some references evaluate saved weights after the clock (BERT, Minigo); where the rules say so
    (Stable Diffusion), they are right there. An interval that began
    on the clock may end a moment after it: `run_stop` is logged within it."""
    if record.started_ms is None or record.minutes is None or restart_lines(log):
        return
    reported = set()
    start_ms, stop_ms = timed(record)
    later = TRAINING if evaluates_after_the_clock(record, rules) else frozenset()
    for event in log.events.of(*TRAINING):
        if event.key in later and event.time_ms > stop_ms:
            continue
        ends = event.key in ENDS and 0 <= event.time_ms - stop_ms <= APART_MS
        if start_ms <= event.time_ms <= stop_ms or ends:
            continue
        when = "before run_start" if event.time_ms < start_ms else "after run_stop"
        early = record.started_ms - event.time_ms > APART_MS and not _is_of_untrained_weights(event)
        if (when, early) in reported:
            continue
        reported.add((when, early))
        message = (
            f"{event.key} has a time {when}; training and evaluation lie between run_start and run_stop."
        )
        yield finding(
            record,
            rules,
            "outside",
            message,
            line=event.line,
            key=event.key,
            value=event.time_ms,
            grade=BREAKS if early else None,
        )


def _is_of_untrained_weights(event: Event) -> bool:
    """True of an evaluation at sample, step and epoch 0."""
    positions = [event.metadata[name] for name in POSITIONS if name in event.metadata]
    return event.key in EVALUATES and bool(positions) and all(position == 0 for position in positions)


def _blocks(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """Unpaired blocks and epochs, except for the one in which the run ends, and gaps between blocks."""
    for kind in ("block", "epoch"):
        starts, stops = log.events.count(f"{kind}_start"), log.events.count(f"{kind}_stop")
        if not 0 <= starts - stops <= 1:
            message = (
                f"There are {starts} {kind}_start and {stops} {kind}_stop lines; they have to pair up, "
                "except where the run ends."
            )
            yield finding(record, rules, kind, message, key=f"{kind}_stop", value=stops)
    yield from _gaps(record, rules, log.events.of("block_start"))


def _gaps(record: RunRecord, rules: BenchmarkRules, starts: Iterable[Event]) -> Iterator[Finding]:
    due: float | None = None
    for event in starts:
        first, count = _numbered(event, "first_epoch_num"), _numbered(event, "epoch_count")
        if first is None or count is None:
            return
        if due is not None and abs(first - due) > 1e-6:
            message = f"This block starts at epoch {first:g}; the previous block ends before epoch {due:g}."
            yield finding(record, rules, "block", message, line=event.line, key=event.key, value=first)
            return
        due = first + count


def _numbered(event: Event, name: str) -> float | None:
    value = event.metadata.get(name)
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e18 else None


def schedule(record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    """Evaluation schedule: every evaluation at its point, none missing, none extra (rules, evaluation frequency).
    Logs that count samples in `train_samples` and say epoch 1 at every evaluation cannot be checked."""
    rule = rules.schedule_at(record.global_batch_size)
    evaluations = once(record.evaluations)
    positions = [evaluated.position for evaluated in evaluations]
    in_samples = record.counted == TRAIN_SAMPLES
    if not positions or rule is None or (in_samples and set(positions) == {1}):
        return
    first = positions[0]
    refused = rule.refuse(first, rule.period)
    if first is None or refused:
        message = f"First evaluation: {refused or 'without a position'}"
        line = evaluations[0].line
        yield finding(record, rules, "schedule", message, line=line, key="eval_accuracy", value=first)
        return
    if rule.any_order:
        yield from _checkpoints(record, rules, rule, evaluations)
        return
    start = min(rule.first, key=lambda due: abs(due - first))
    until = start + rule.period * (len(positions) - 1)
    expected = EvalSchedule(first=start, period=rule.period, until=until).points()
    for position, (evaluated, due) in enumerate(zip(evaluations, expected, strict=True), start=1):
        number = evaluated.position
        if number is None or abs(number - due) > rule.slack:
            message = (
                f"Evaluation {position} is at {rules.unit.value} {number}, due at {due:g} (first {start:g}, then "
                f"every {rule.period:g})."
            )
            key, line = "eval_accuracy", evaluated.line
            yield finding(record, rules, "schedule", message, line=line, key=key, value=number)
            return
    if in_samples and abs((record.train_samples or 0) - expected[-1]) > rule.slack:
        message = (
            f"{TRAIN_SAMPLES} is {record.train_samples}, but the last evaluation was due at "
            f"{expected[-1]:g} samples."
        )
        yield finding(record, rules, "schedule", message, key=TRAIN_SAMPLES, value=record.train_samples)


def _checkpoints(
    record: RunRecord, rules: BenchmarkRules, rule: ScheduleRule, evaluations: Sequence[Evaluated]
) -> Iterator[Finding]:
    """The first evaluation that is of no checkpoint of the schedule."""
    for evaluated in evaluations:
        if not rule.is_checkpoint(evaluated.position):
            message = (
                f"An evaluation is at {rules.unit.value} {evaluated.position}; checkpoints are at {rule}."
            )
            key, line = "eval_accuracy", evaluated.line
            yield finding(record, rules, "schedule", message, line=line, key=key, value=evaluated.position)
            return


def _impossible(record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    """The first metric beyond the best value that it can have, for example percent for a fraction."""
    if record.announced.get("submission_division") == OPEN:
        return
    for item in record.evaluations:
        metrics = rules.target.quality_of(item.value).metrics
        for threshold in rules.target.thresholds:
            seen = metrics.get(threshold.metric, 0.0)
            if threshold.is_impossible(seen):
                message = (
                    f"The evaluation has {threshold.metric} {seen!r}, which {threshold.bound}; such a value reaches no "
                    "target."
                )
                key = "eval_accuracy"
                yield finding(record, rules, "impossible", message, line=item.line, key=key, value=item.value)
                return


def _target(record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """Target: reached or not, when, and in agreement with `run_stop`. The open division sets its own targets; there
    only `run_stop` counts."""
    cut_off = record.status == DIED or bool(record.deaths)
    if record.announced.get("submission_division") == OPEN:
        if record.status != SUCCESS and not cut_off:
            yield finding(record, rules, "target", "run_stop has the status aborted.", grade=SLOW)
        return
    reached = [rules.target.reached(rules.target.quality_of(item.value)) for item in once(record.evaluations)]
    if record.status == SUCCESS and not any(reached):
        message = f"run_stop has the status success, but no evaluation reached the target ({rules.target})."
        yield finding(record, rules, "run_stop", message, key="run_stop", value=record.quality)
    if any(reached[:-1]) and not evaluates_after_the_clock(record, rules):
        message = (
            f"Evaluation {reached.index(True) + 1} reached the target, but the run went on; a run ends at "
            "the first such evaluation."
        )
        yield finding(record, rules, "stop", message, key="run_stop")
    stop = log.events.first("run_stop")
    if stop is not None and record.status != SUCCESS and reached and reached[-1] and not cut_off:
        message = f"The last evaluation reached the target, but run_stop has {status_in_words(stop)}."
        yield finding(record, rules, "run_stop", message, key="run_stop", value=record.quality)
    if not any(reached) and not cut_off:
        last = _last_quality(record.quality, rules.target) if reached else "there was no evaluation"
        message = f"The target ({rules.target}) was not reached; {last}."
        yield finding(record, rules, "target", message, key="eval_accuracy", value=record.quality, grade=SLOW)


def once(evaluations: Sequence[Evaluated]) -> list[Evaluated]:
    """Evaluations without those that several processes log: the same position and value as the one above."""
    kept: list[Evaluated] = []
    for one in evaluations:
        if one.position is None or not kept or kept[-1][:2] != one[:2]:
            kept.append(one)
    return kept


def _repeated(record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    repeated = len(record.evaluations) - len(once(record.evaluations))
    if repeated:
        message = (
            f"{repeated} of {len(record.evaluations)} evaluations are logged again with the same value; if several "
            "processes write into the file, let one of them log."
        )
        yield finding(record, rules, "repeated", message, key="eval_accuracy", value=repeated)


def _last_quality(logged: Any, target: Target) -> str:
    """Last quality of a run that missed its target, to four decimal places as in tables, or to as many as
    distinguish it from the target."""
    quality = target.quality_of(logged)
    if quality.diverged:
        return "the last quality is not a number"
    rounded = quality
    for digits in range(4, 18):
        rounded = Quality(metrics={name: round(value, digits) for name, value in quality.metrics.items()})
        if not target.reached(rounded):
            break
    metrics = rounded.metrics
    listed = ", ".join(f"{name} {value}" for name, value in metrics.items())
    return f"last quality {listed if len(metrics) > 1 else rounded.logged}"
