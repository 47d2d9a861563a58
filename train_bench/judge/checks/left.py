"""What a campaign leaves: files, keys and witnesses, by the version of train_bench that planned it.

The table is of this version, and is held to two sides: a test runs a campaign that leaves every row, and the judge asks
about each row that a finished campaign lacks. Campaigns of older versions are held to the rows of their time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.job import KEPT_WEIGHTS, PLAN_DIGEST, jobs_of
from train_bench.errors import LogError
from train_bench.judge.checks.campaign_checks import FINISHED, attempts_at
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.planned import mapping
from train_bench.judge.checks.samples import DATA, ORDER
from train_bench.judge.finding import REVIEW, Finding
from train_bench.logs.record import PROCESSOR_WAIT, SUCCESS

LEFT = "left"
PLAN, SYSTEM, ATTEMPT, RANKS, RECORD, LOG = (
    "plan.json",
    "system.json",
    "attempts/run_N_K.json",
    "ranks/run_N",
    "record_N.json",
    "result_N.txt",
)
CRATE = "ro-crate-metadata.json"
"""Beside the results of an export, which leaves out the output of ranks."""

EXPORTED = "results"
THIS, NEW_IN_JOBS = (0, 2), frozenset({"python", "drop_caches_command"})
"""The version of this table, and keys that no older one wrote for all jobs of a plan."""

MOST_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What decides which rows apply: the version that made the plan, whether a program of the user's own ran, whether
    weights were to be kept, and whether the files are those of an export."""

    version: tuple[int, ...]
    program: bool
    keeps_weights: bool
    exported: bool


def _always(promise: Promise) -> bool:
    return True


def _of_reference(promise: Promise) -> bool:
    return not promise.program


def _of_program(promise: Promise) -> bool:
    return promise.program


def _keeps_weights(promise: Promise) -> bool:
    return promise.keeps_weights


def _not_exported(promise: Promise) -> bool:
    return not promise.exported


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that is left: a `key` of a file that is not null, with dots between levels, or the file itself. `N` is
    a run, `K` its last attempt. Rows with `asked` are missed by the check of that name."""

    file: str
    key: str | None = None
    since: tuple[int, ...] = THIS
    when: Callable[[Promise], bool] = _always
    asked: str | None = None


def _keys(file: str, *keys: str, when: Callable[[Promise], bool] = _always) -> tuple[Row, ...]:
    return tuple(Row(file=file, key=key, when=when) for key in keys)


TABLE = (
    *_keys(PLAN, "train_bench", "created", "software.sources", "software.python", "software.packages"),
    *_keys(PLAN, "ruleset_digest", "world_size", "launcher", "seeds", "runs_required", "changes", "request"),
    Row(file=SYSTEM),
    *_keys(
        SYSTEM, "host", "processor", "cores", "memory_bytes", "accelerators", "operating_system", "kernel"
    ),
    *_keys(SYSTEM, "python", "packages", "environment", "platform"),
    *_keys(SYSTEM, "threads_per_rank", when=_of_reference),
    Row(file=ATTEMPT, asked="attempts"),
    *_keys(ATTEMPT, "host", "started", "ended", "outcome", "ruleset_digest", "software", "clock_seconds"),
    *_keys(ATTEMPT, "observed", when=_of_program),
    Row(file=RANKS, when=_not_exported),
    Row(file=RECORD, asked="record"),
    Row(file=LOG, key=PLAN_DIGEST, when=_of_reference, asked="plan"),
    Row(file=LOG, key=PROCESSOR_WAIT, when=_of_reference, asked=PROCESSOR_WAIT),
    Row(file=LOG, key=DATA, when=_of_reference, asked=DATA),
    Row(file=LOG, key=ORDER, when=_of_reference, asked=ORDER),
    Row(file=LOG, key=KEPT_WEIGHTS, when=_keeps_weights),
)


def promise_of(case: EntryCase) -> Promise:
    """The promise of a campaign's plan."""
    location = case.location
    plan, folder = location.plan, location.folder
    return Promise(
        version=version_of(plan),
        program=location.runs_command,
        keeps_weights=any(job.get("keep_weights") is True for job in jobs_of(plan)),
        exported=folder.name == EXPORTED and (folder.parent / CRATE).is_file(),
    )


def version_of(plan: Mapping[str, Any]) -> tuple[int, ...]:
    """Version of the train_bench that made a plan, as numbers; that of this table if the plan does not tell it, or has
    a key that older plans lack."""
    found = re.match(r"(\d{1,6})(?:\.(\d{1,6}))?", str(plan.get("train_bench")))
    named = tuple(int(number or 0) for number in found.groups()) if found else THIS
    return max(named, THIS) if NEW_IN_JOBS & mapping(plan.get("shared")).keys() else named


def check_left(case: EntryCase) -> Iterator[Finding]:
    """Files, keys and lines that a campaign of its version leaves, and this one lacks; for review. Lines and keys of a
    run count where it has converged."""
    if not case.location.plan or not case.rules.strict:
        return
    promise = promise_of(case)
    rows = [row for row in TABLE if row.asked is None and row.since <= promise.version and row.when(promise)]
    for file in dict.fromkeys(row.file for row in rows):
        lacking: dict[str | None, list[str]] = {}
        for name, has in _places(case, file):
            for row in rows:
                if row.file == file and not has(row.key):
                    lacking.setdefault(row.key, []).append(name)
        whole = lacking.pop(None, [])
        for names, what in (
            (whole, ""),
            (sorted({name for found in lacking.values() for name in found} - {*whole}), _listed(lacking)),
        ):
            if names:
                yield _missing(case, names, what)


def _missing(case: EntryCase, names: list[str], what: str) -> Finding:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    where = f"{names[0]}{more}"
    said = f"There is no {where}" if not what else f"{where} {'have' if more else 'has'} no {what}"
    message = f"{said}; a campaign of train_bench {case.location.plan.get('train_bench')} leaves it. Was it removed?"
    return Finding(
        check=LEFT,
        grade=REVIEW,
        file=str(case.folder),
        line=0,
        key=None,
        message=message,
        value=what or names[0],
    )


def _listed(lacking: Mapping[str | None, list[str]]) -> str:
    keys = [str(key) for key in lacking]
    more = f" and {len(keys) - MOST_NAMES} more" if len(keys) > MOST_NAMES else ""
    return ", ".join(keys[:MOST_NAMES]) + more


def _places(case: EntryCase, file: str) -> Iterator[tuple[str, Callable[[str | None], bool]]]:
    """The files of a row in a campaign, each with a function that says whether it has a key, or is there."""
    folder = case.folder
    if file in (PLAN, SYSTEM):
        yield file, _in_json(folder / file, case.location.plan if file == PLAN else None)
        return
    for record, logged in zip(case.records, case.logged_keys, strict=False):
        if record.status != SUCCESS:
            continue
        if file == RANKS:
            path = folder / "ranks" / f"run_{record.index}"
            yield f"ranks/{path.name}", lambda key, path=path: path.is_dir()  # type: ignore[misc]
        elif file == ATTEMPT:
            attempts = attempts_at(case.location, record.index)
            if attempts and attempts[-1].get("outcome") in (None, FINISHED):
                last = attempts[-1]
                name = f"attempts/run_{record.index}_{len(attempts)}.json"
                yield name, lambda key, last=last: key is None or _has(last, key)  # type: ignore[misc]
        elif file == LOG:
            yield Path(record.file).name, lambda key, logged=logged: key in logged  # type: ignore[misc]


def _in_json(path: Path, read: Mapping[str, Any] | None) -> Callable[[str | None], bool]:
    there = path.is_file()
    try:
        content = mapping(files.read_json(path)) if read is None and there else read or {}
    except LogError:
        content = {}
    return lambda key: there if key is None else not there or _has(content, key)


def _has(content: Mapping[str, Any], key: str) -> bool:
    value: Any = content
    for name in key.split("."):
        value = mapping(value).get(name)
    return value is not None
