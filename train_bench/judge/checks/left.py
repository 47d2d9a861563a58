"""Files, keys and log lines that a campaign leaves, by the version of train_bench that planned it.

One table for both sides: a test runs a campaign that leaves every row, and the judge asks about each row that a
campaign with a converged run lacks. Campaigns of older versions are held to the rows of their time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from train_bench.core import files, software
from train_bench.core.escape import plain
from train_bench.core.job import KEPT_WEIGHTS, PLAN_DIGEST, jobs_of
from train_bench.errors import LogError
from train_bench.judge.checks.campaign_checks import FINISHED, attempts_at
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.planned import mapping
from train_bench.judge.checks.samples import DATA, ORDER
from train_bench.judge.finding import Finding, file_finding
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

Version = tuple[int, int]
RELEASED, THIS = (0, 2), (0, 3)
"""Versions from which rows hold: the last release, and what follows it, which still carries its number."""

NEW_IN_JOBS = frozenset({"python", "drop_caches_command", "grace_seconds"})
"""Keys that no release wrote for the jobs of a plan."""

MOST_NAMES, LONGEST = 8, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Kind of a campaign, which decides what it leaves: the version that made the plan, whether a program of the user's
    own ran, whether weights were to be kept, and whether the files are those of an export."""

    version: Version
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
    a run, `K` its last attempt. Rows with `asked` are missed by the check of that name, with `strict` in rounds of our
    own alone."""

    file: str
    key: str | None = None
    since: Version = RELEASED
    when: Callable[[Promise], bool] = _always
    asked: str | None = None
    strict: bool = False


def _keys(
    file: str, *keys: str, since: Version = RELEASED, when: Callable[[Promise], bool] = _always
) -> tuple[Row, ...]:
    return tuple(Row(file=file, key=key, since=since, when=when) for key in keys)


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
    *_keys(ATTEMPT, "started", "ended", "outcome", "ruleset_digest", "software"),
    *_keys(ATTEMPT, "host", "clock_seconds", since=THIS),
    *_keys(ATTEMPT, "observed", since=THIS, when=_of_program),
    Row(file=RANKS, when=_not_exported),
    Row(file=RECORD, asked="record"),
    Row(file=LOG, key=PLAN_DIGEST, when=_of_reference, asked="plan"),
    Row(file=LOG, key=PROCESSOR_WAIT, when=_of_reference, asked=PROCESSOR_WAIT, strict=True),
    Row(file=LOG, key=DATA, when=_of_reference, asked=DATA, strict=True),
    Row(file=LOG, key=ORDER, when=_of_reference, asked=ORDER, strict=True),
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


def version_of(plan: Mapping[str, Any]) -> Version:
    """Version of the train_bench that made a plan; that of this table if the plan does not name it, has a key that no
    release wrote, or names the very sources of this train_bench."""
    found = re.match(r"(\d{1,6})(?:\.(\d{1,6}))?", str(plan.get("train_bench")))
    named = (int(found[1]), int(found[2] or 0)) if found else THIS
    new_keys = NEW_IN_JOBS & mapping(plan.get("shared")).keys()
    if new_keys or mapping(plan.get("software")).get("sources") == own_sources():
        return max(named, THIS)
    return named


@cache
def own_sources() -> str:
    """Digest of the sources of this process, taken once."""
    return software.digest_of_sources()


def check_left(case: EntryCase) -> Iterator[Finding]:
    """Files, keys and lines that a campaign of its version leaves, and this one lacks; for review. Only runs that have
    converged count."""
    if not case.location.plan or all(record.status != SUCCESS for record in case.records):
        return
    promise = promise_of(case)
    rows = [
        row
        for row in TABLE
        if (row.asked is None or (row.strict and not case.rules.strict))
        and row.since <= promise.version
        and row.when(promise)
    ]
    for file in dict.fromkeys(row.file for row in rows):
        keys = [row.key for row in rows if row.file == file]
        missing, lacking, names = [], dict[str, None](), []
        for name, content in _contents(case, file):
            if content is None and None in keys:
                missing.append(name)
            elif content is not None and (absent := [key for key in keys if key and not _has(content, key)]):
                lacking |= dict.fromkeys(absent)
                names.append(name)
        if missing:
            yield _finding(case, f"There is no {_first(missing)}", missing[0])
        if names:
            listed = ", ".join([*lacking][:MOST_NAMES])
            more = f" and {len(lacking) - MOST_NAMES} more" if len(lacking) > MOST_NAMES else ""
            lacks = "lacks" if len(names) == 1 else "lack"
            yield _finding(case, f"{_first(names)} {lacks} {listed}{more}", listed)


def _contents(case: EntryCase, file: str) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """Files of the campaign that a row means, with their keys; None for one that is not there. A missing attempt is
    another check's."""
    folder = case.folder
    if file == PLAN:
        yield file, case.location.plan
    elif file == SYSTEM:
        yield file, _read(folder / file)
    else:
        for record, logged in zip(case.records, case.logged_keys, strict=False):
            if record.status != SUCCESS:
                continue
            if file == RANKS:
                path = folder / "ranks" / f"run_{record.index}"
                yield f"ranks/{path.name}", {} if path.is_dir() else None
            elif file == LOG:
                own = {DATA} if record.train_samples is None else set()  # a run that makes its own data
                yield Path(record.file).name, dict.fromkeys(logged | own, True)
            elif (attempts := attempts_at(case.location, record.index)) and (
                attempts[-1].get("outcome") in (None, FINISHED)
            ):
                yield f"attempts/run_{record.index}_{len(attempts)}.json", attempts[-1]


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        return mapping(files.read_json(path)) if path.is_file() else None
    except LogError:
        return {}


def _has(content: Mapping[str, Any], key: str) -> bool:
    value: Any = content
    for name in key.split("."):
        value = mapping(value).get(name)
    return value is not None


def _first(names: list[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def _finding(case: EntryCase, said: str, value: str) -> Finding:
    version = plain(str(case.location.plan.get("train_bench")))[:LONGEST]
    message = (
        f"{said}, which a campaign of train_bench {version} leaves. Was it removed? Judge the folder in which the "
        "campaign ran."
    )
    return file_finding(case.folder, LEFT, message, value=value)
