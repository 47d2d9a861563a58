"""The logs of a campaign against its plan, its records and each other.

Plan, records and logs are plain files. Each follows from another, so that an edit of one contradicts the others;
whoever writes all of them anew can make them agree, and without a signature that is undetectable.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench import seeds
from train_bench.core import files
from train_bench.core.digits import significant
from train_bench.core.job import OF_ONE_JOB, PLAN_DIGEST
from train_bench.errors import LogError
from train_bench.judge.checks.case import EntryCase, LogCase
from train_bench.judge.checks.planned import Planned, count, mapping
from train_bench.judge.finding import BREAKS, REVIEW, Finding, file_finding, finding
from train_bench.judge.patterns import same_qualities, time_copies
from train_bench.logs.log import NO_CONTENT, Log
from train_bench.logs.record import SUCCESS, TELLING_SECONDS, RunRecord
from train_bench.rules.ruleset import BenchmarkRules

CLOCKS_MS = 60_000
"""Largest tolerated difference between the clock of the planning host and those of the training hosts."""

EQUAL_TIMES, EQUAL_QUALITIES = "equal_times", "equal_qualities"

OUTLIER = 3.0
"""Factor from the median beyond which a run's speed is an outlier; on an idle machine speeds agree within a
few hundredths."""


def check_run_against_plan(case: LogCase) -> Iterator[Finding]:
    """One log against its job and its record."""
    planned, rules = case.planned, case.rules
    record, log = case.as_logged
    yield from _record(record, rules)
    if planned is None or not log.events:
        return
    job = planned.jobs.get(record.index)
    if job is None:
        message = (
            f"plan.json next to this log has no run {record.index}; it has {len(planned.jobs)} runs, "
            "counted from 0."
        )
        yield finding(record, rules, "plan", message, value=record.index)
        return
    yield from _values(job, record, log, rules)
    yield from _digest(planned, record, log, rules)
    started = log.events[0].time_ms
    if planned.created_ms is not None and started < planned.created_ms - CLOCKS_MS:
        message = (
            f"The run began {(planned.created_ms - started) / 1000:.0f} s before its plan was written; a "
            "plan is written before the first run."
        )
        yield finding(record, rules, "plan", message, line=log.events[0].line, value=started)


def _values(job: Mapping[str, Any], record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """Values that the plan decided and the log has under the same key. Those that are null in a plan are found by
    the ranks."""
    hyperparameters = mapping(mapping(job.get("config")).get("hyperparameters"))
    decided = {**mapping(job.get("announcement")), **hyperparameters, "seed": job.get("seed")}
    for event in log.events.of(*decided):
        due = decided.get(event.key)
        if due is not None and event.value != due:
            message = (
                f"{event.key} is {_short(event.value)} in this log and {_short(due)} in the plan of the "
                "run; they have to be equal."
            )
            yield finding(record, rules, "plan", message, line=event.line, key=event.key, value=event.value)


def _digest(planned: Planned, record: RunRecord, log: Log, rules: BenchmarkRules) -> Iterator[Finding]:
    """Digest of the plan in the log. A program of the user's own need not log it."""
    logged = list(log.events.of(PLAN_DIGEST))
    if not logged and not planned.jobs[record.index].get("command"):
        message = (
            f"The log has no {PLAN_DIGEST}, so it cannot be verified that the run used plan.json next to it."
        )
        yield finding(record, rules, "plan", message, key=PLAN_DIGEST, grade=REVIEW)
    elif logged and logged[0].value != planned.digest:
        message = (
            "plan.json next to this log is not the plan of its run: their digests differ, so one of the "
            "two files was edited."
        )
        line, value = logged[0].line, logged[0].value
        yield finding(record, rules, "plan", message, line=line, key=PLAN_DIGEST, value=value)


def _record(record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    """Digest that the campaign took of the log when the run had ended."""
    path = Path(record.file).with_name(f"record_{record.index}.json")
    if not path.is_file():
        return
    try:
        stated = mapping(files.read_json(path)).get("sha256")
    except LogError:
        stated = None
    if not isinstance(stated, str):
        message = f"{path.name} has no sha256 of this log, so edits after the run cannot be excluded."
        yield finding(record, rules, "record", message, grade=REVIEW)
    elif stated != record.sha256:
        message = f"The log was edited after its run: its sha256 is not the one in {path.name}."
        yield finding(record, rules, "record", message, value=record.sha256)


def check_entry_against_plan(case: EntryCase) -> Iterator[Finding]:
    """The plan by itself, and facts unverifiable without plan or records. Official rounds have neither."""
    location, planned, records, rules = case.location, case.planned, case.records, case.rules
    grade = BREAKS if rules.strict else REVIEW
    plan = location.folder / "plan.json"
    if planned is None:
        if rules.strict and not location.alone:
            message = (
                "There is no plan.json next to these logs, so it cannot be verified that they are all "
                "runs of the campaign, with the seeds and values planned before the first run."
            )
            yield file_finding(plan, "plan", message)
        return
    for message in _contradictions(location.plan, planned, rules):
        yield file_finding(plan, "plan", f"The plan contradicts itself: {message}.", grade=grade)
    names = [f"record_{record.index}.json" for record in records]
    missing = [name for name in names if not (location.folder / name).is_file()]
    if missing:
        listed = missing[0] if len(missing) == 1 else f"{missing[0]} and {len(missing) - 1} more"
        message = (
            f"Missing records: {listed}; edits of the corresponding logs after their runs cannot be excluded."
        )
        yield file_finding(location.folder, "record", message)


def _contradictions(plan: Mapping[str, Any], planned: Planned, rules: BenchmarkRules) -> Iterator[str]:
    """Contradictions within a plan."""
    jobs = list(planned.jobs.values())
    if len({_without(job, OF_ONE_JOB) for job in jobs}) > 1:
        yield "its runs differ in more values than their seeds"
    request = mapping(plan.get("request"))
    launcher = mapping(jobs[0].get("launcher_config"))
    for options in (jobs[0], launcher):
        if {"nodes", "nproc_per_node"} <= options.keys():
            ranks = count(options["nodes"]) * count(options["nproc_per_node"])
            if ranks != plan.get("world_size"):
                yield f"world_size is {_short(plan.get('world_size'))}, and its runs have {ranks} ranks"
    for name in (jobs[0].get("launcher"), launcher.get("name")):
        if name not in (None, plan.get("launcher")):
            yield f"launcher is {_short(plan.get('launcher'))}, and its runs have {_short(name)}"
    target = mapping(jobs[0].get("target")).get("thresholds")
    due = [threshold.value for threshold in rules.target.thresholds]
    same_rules = plan.get("ruleset_digest") == rules.digest  # with others it may have had another target
    if same_rules and isinstance(target, list) and [mapping(one).get("value") for one in target] != due:
        yield f"the target of its runs is not that of {rules.ruleset} ({rules.target})"
    base = request.get("seed")
    chosen = [planned.jobs[index].get("seed") for index in sorted(planned.jobs)]
    of_a_result = plan.get("runs_required") == rules.runs
    if of_a_result and isinstance(base, int) and chosen != list(seeds.from_base(base, len(chosen))):
        yield f"its seeds do not follow from seed={base}"


def against_each_other(
    records: Sequence[RunRecord], planned: Planned | None, rules: BenchmarkRules
) -> list[list[Finding]]:
    """Values that two runs cannot share, and outlying speeds."""
    overlapping = _overlapping(records) if rules.strict and not (planned and planned.side_by_side) else {}
    speeds = [record.samples_per_second for record in records if record.samples_per_second]
    usual = statistics.median(speeds) if len(speeds) > 2 else None
    first: dict[str, RunRecord] = {}
    patterns = time_copies(records)
    findings = []
    for at, record in enumerate(records):
        other = overlapping.get(at)
        findings.append(
            [
                *_copied(records, at, first, patterns, rules),
                *(_at_once(record, records[other], rules) if other is not None else ()),
                *_outlier(record, usual, rules),
            ]
        )
    return findings


def _alike(record: RunRecord, first: dict[str, RunRecord], rules: BenchmarkRules) -> Iterator[Finding]:
    """Equal times or qualities of two runs, which never occur but in runs of a moment, whose times may be equal by
    chance. `first` has the first run of each, and is added to. Copies of whole files are found elsewhere."""
    if record.started_ms is None or record.minutes is None or record.sha256 == NO_CONTENT:
        return
    evaluations = record.evaluations
    times = [evaluation.time_ms - record.started_ms for evaluation in evaluations]
    qualities = [(evaluation.position, evaluation.value) for evaluation in evaluations]
    same_times = first.setdefault(f"times {times} {record.minutes}", record)
    same_qualities = first.setdefault(f"qualities {qualities}", record)
    telling = record.minutes * 60 >= TELLING_SECONDS or same_qualities is same_times
    if len(evaluations) > 1 and same_times.sha256 != record.sha256 and telling:
        name = Path(same_times.file).name
        message = (
            f"All evaluations and run_stop have the same times, to the millisecond, as those of {name}; "
            "times of two runs differ."
        )
        yield finding(record, rules, EQUAL_TIMES, message)
    elif len(evaluations) > 3 and record.status == SUCCESS and same_qualities.sha256 != record.sha256:
        message = (
            f"All {len(evaluations)} evaluations have the same values as those of "
            f"{Path(same_qualities.file).name}."
        )
        yield finding(record, rules, EQUAL_QUALITIES, message, grade=REVIEW)


def _copied(
    records: Sequence[RunRecord],
    at: int,
    first: dict[str, RunRecord],
    patterns: Mapping[int, int],
    rules: BenchmarkRules,
) -> Iterator[Finding]:
    """Times and qualities of an earlier run, as they are, or moved, stretched and shaken."""
    record = records[at]
    exact = [*_alike(record, first, rules)]
    yield from exact
    checks = {one.check for one in exact}
    if record.sha256 in {one.sha256 for one in records[:at]}:
        return
    if at in patterns and EQUAL_TIMES not in checks:
        message = (
            f"The intervals between its {len(record.evaluations)} evaluations are those of "
            f"{Path(records[patterns[at]].file).name}, stretched or shaken by milliseconds; those of two runs differ."
        )
        yield finding(record, rules, "equal_pattern", message)
    other = next((one for one in records[:at] if same_qualities(one, record)), None)
    if other is not None and record.status == SUCCESS and not checks:
        message = (
            f"Its {len(record.evaluations)} qualities are those of {Path(other.file).name} times a factor, plus a "
            "number; those of two runs differ."
        )
        yield finding(record, rules, EQUAL_QUALITIES, message, grade=REVIEW)


def _overlapping(records: Sequence[RunRecord]) -> dict[int, int]:
    """Run -> an earlier one that had not ended when it began."""
    timed = [
        (record.started_ms, record.started_ms + round(record.minutes * 60_000), at)
        for at, record in enumerate(records)
        if record.started_ms is not None and record.minutes is not None
    ]
    overlapping: dict[int, int] = {}
    last: tuple[int, int] | None = None
    for started, ended, at in sorted(timed):
        if last is not None and started < last[0]:
            overlapping[at] = last[1]
        last = max(last or (ended, at), (ended, at))
    return overlapping


def _at_once(record: RunRecord, other: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    if record.sha256 != other.sha256:
        name = Path(other.file).name
        message = f"The run began before that of {name} had ended; runs of a campaign are sequential."
        yield finding(record, rules, "overlap", message, grade=REVIEW)


def _outlier(record: RunRecord, usual: float | None, rules: BenchmarkRules) -> Iterator[Finding]:
    speed = record.samples_per_second
    if usual and speed and not 1 / OUTLIER < speed / usual < OUTLIER:
        own, median = significant(speed, usual)
        message = (
            f"The speed of the run is an outlier: {own} samples/s, where the median of the runs is {median}."
        )
        yield finding(record, rules, "speed", message, value=speed, grade=REVIEW)


def _without(job: Mapping[str, Any], names: Sequence[str]) -> str:
    return json.dumps({name: value for name, value in job.items() if name not in names}, sort_keys=True)


def _short(value: Any) -> str:
    return repr(value)[:80]
