"""Qualities of a user's own program against those that the evaluator of its campaign has found, by the record of the
attempt (`observed`): a log whose quality the evaluator did not give breaks a rule."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.core.finite_number import finite_number
from train_bench.core.job import REFERENCE, jobs_of
from train_bench.judge.checks.campaign_checks import attempts_at
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.planned import mapping
from train_bench.judge.finding import Finding, file_finding, finding
from train_bench.judge.locate import Location
from train_bench.logs.record import RunRecord

EVALUATOR, OFF_THE_CLOCK = "evaluator", "evaluator_off_clock"
QUALITY = "quality"

THE_PROGRAM = "the program itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the evaluator of a run found: of each evaluation its metrics, digest and bytes of what was handed over, and
    its seconds; the files of the evaluator that had changed by then, `files` with their digests before the program
    began, and whether it was started without them (`hidden`)."""

    metrics: Sequence[Mapping[str, Any]]
    handed: Sequence[str]
    bytes: Sequence[float]
    seconds: Sequence[float]
    changed: Sequence[str]
    files: Mapping[str, Any]
    hidden: bool


def evaluator_of(location: Location) -> str | None:
    """Command of the evaluator that the campaign was planned with; None without one."""
    planned = mapping(next(iter(jobs_of(location.plan_or_package)), {}).get(EVALUATOR))
    argv = planned.get("argv")
    return shlex.join(map(str, argv)) if isinstance(argv, list) else None


def measured_of(location: Location, index: int) -> Measured | None:
    """What the evaluator found in the last attempt at a run; None without a record of it."""
    attempts = attempts_at(location, index)
    seen = mapping(mapping(attempts[-1].get("observed")).get(EVALUATOR)) if attempts else {}
    found = seen.get("evaluations")
    if not isinstance(found, list):
        return None
    each = [mapping(one) for one in found]
    return Measured(
        metrics=[mapping(one.get("metrics")) for one in each],
        handed=[str(one.get("handed")) for one in each],
        bytes=[float(finite_number(one.get("bytes"), below=1e18) or 0.0) for one in each],
        seconds=[float(finite_number(one.get("seconds"), below=1e12) or 0.0) for one in each],
        changed=sorted({str(name) for one in each for name in one.get("changed") or ()}),
        files=mapping(seen.get("files")),
        hidden=seen.get("hidden") is True,
    )


def check_measured(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """The qualities of a log against those that the evaluator found, one by one."""
    if evaluator_of(case.location) is None:
        return
    found = measured_of(case.location, record.index)
    if found is None:
        message = (
            "The campaign was planned with an evaluator, and there is no record of what it found in this run."
        )
        yield finding(record, case.rules, QUALITY, message)
        return
    if found.changed:
        message = f"{', '.join(found.changed)} changed while the program ran; the evaluator is no longer what it was."
        yield finding(record, case.rules, EVALUATOR, message, value=found.changed[0])
    logged = [case.rules.target.quality_of(evaluated.value).metrics for evaluated in record.evaluations]
    for number, (here, there) in enumerate(zip(logged, found.metrics, strict=False), start=1):
        others = [name for name, value in here.items() if there.get(name) != value and value == value]
        if others:
            name = others[0]
            message = (
                f"Evaluation {number} of the log has {name} {here[name]:g}, and the evaluator found "
                f"{there.get(name)}; the quality was not measured by it."
            )
            yield finding(record, case.rules, QUALITY, message, value=here[name])
            return
    if len(logged) != len(found.metrics):
        message = (
            f"The log has {len(logged)} evaluations, and the evaluator was asked {len(found.metrics)} times; each of "
            "its answers belongs to one."
        )
        yield finding(record, case.rules, QUALITY, message, value=len(found.metrics))


def check_evaluators(case: EntryCase) -> Iterator[Finding]:
    """Evaluators that differ between the runs of a campaign, and runs that handed over the same bytes."""
    if evaluator_of(case.location) is None:
        return
    runs = [(record, measured_of(case.location, record.index)) for record in case.records]
    known = [(record, found) for record, found in runs if found is not None]
    for record, found in known[1:]:
        first = known[0][1].files
        apart = sorted(name for name in {*first, *found.files} if first.get(name) != found.files.get(name))
        if apart:
            message = (
                f"{', '.join(apart)} of the evaluator differs between {Path(known[0][0].file).name} and "
                f"{Path(record.file).name}; the qualities of these runs are not of one kind."
            )
            yield file_finding(case.folder, EVALUATOR, message, value=apart[0])
            break
    whose: dict[str, RunRecord] = {}
    for record, found in known:
        again = next((whose[one] for one in found.handed if one in whose), None)
        if again is not None:
            message = f"{Path(record.file).name} handed over the bytes of {Path(again.file).name}; are they replayed?"
            yield file_finding(case.folder, "replayed", message, value=record.index)
        whose |= dict.fromkeys(found.handed, record)


def measured_by(case: EntryCase) -> str | None:
    """Who measured the quality of a user's own program; None of a reference."""
    if not case.location.runs_command:
        return None
    command = evaluator_of(case.location)
    found = [measured_of(case.location, record.index) for record in case.records]
    if command is None or not found or None in found:
        return THE_PROGRAM
    hidden = all(one is not None and one.hidden for one in found)
    reach = "which the program could not read" if hidden else "which the program's user can read"
    who = f"the evaluator {command}"
    if command.startswith(REFERENCE):
        who = f"the evaluation of the reference {command.removeprefix(REFERENCE)}"
    return f"{who}, in a process of its own, from files {reach}"


def minutes_of_evaluator(case: EntryCase, record: RunRecord) -> float:
    """Minutes that the evaluator took in a run, where the plan leaves them out of its time."""
    job = next(iter(jobs_of(case.location.plan_or_package)), {})
    if job.get(OFF_THE_CLOCK) is not True or not case.rules.strict:
        return 0.0
    found = measured_of(case.location, record.index)
    return 0.0 if found is None else sum(found.seconds) / 60
