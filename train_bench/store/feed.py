"""Ingest: judgements -> rows of the store. A folder of logs is one entry, written in one transaction."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train_bench.compare import gate
from train_bench.core.job import jobs_of
from train_bench.judge.checks.planned import mapping
from train_bench.judge.checks.submission import accelerators_of
from train_bench.judge.checks.unverifiable import ran_or_planned
from train_bench.judge.compliance import RunVerdict
from train_bench.judge.entry import Judgement
from train_bench.judge.locate import Location
from train_bench.judge.published.peers import model_of
from train_bench.rules import ruleset
from train_bench.store.schema import LARGEST_NUMBER, transaction

CAMPAIGN, PUBLISHED, ALONE = "campaign", "published", "logs"

LARGEST_INTEGER = 2**63 - 1
"""Largest SQLite integer."""

TASK = (
    "benchmark",
    "variant",
    "ruleset",
    "rules_digest",
    "target",
    "batch_size",
    "changes",
    "hyperparameters",
)
ENVIRONMENT = ("launcher", "ranks", "nodes", "threads_per_rank", "device", "precision", "versions")

LINE = (
    "kind",
    "task",
    "submitter",
    "division",
    "system",
    "launcher",
    "ranks",
    "nodes",
    "device",
    "precision",
)
"""Properties that campaigns of one history line share; versions, revision and host may differ along it."""

LINE_OF_PUBLISHED = ("kind", "benchmark", "target", "submitter", "division", "family", "accelerators")
"""Properties that published entries of one line share. Along it rounds differ, with the same target, and batch sizes,
which submitters choose anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """Number of ingested entries and logs, and warnings in sentences: logs that changed since they were indexed, and
    entries whose logs are gone."""

    entries: int
    logs: int
    changed: tuple[str, ...]
    gone: tuple[str, ...]


def put_all(
    connection: sqlite3.Connection,
    judgements: Iterable[Judgement],
    below: Sequence[Path] = (),
    *,
    forget: bool = False,
) -> IngestResult:
    """Upsert every judgement by its folder. `below` are folders that were judged completely: entries there that have no
    log any more are named, and removed if `forget`."""
    folders: set[str] = set()
    changed: list[str] = []
    logs = 0
    for judgement in judgements:
        changed += _put(connection, judgement)
        folders.add(_folder(judgement))
        logs += len(judgement.records)
    gone = [folder for path in below for folder in _gone(connection, path, folders)]
    for folder in gone if forget else ():
        with transaction(connection):
            _remove(connection, folder)
    what = "is forgotten" if forget else "stays in the store until --forget-missing is given"
    return IngestResult(
        entries=len(folders),
        logs=logs,
        changed=tuple(changed),
        gone=tuple(f"{folder} has no log any more; its entry {what}." for folder in gone),
    )


def _put(connection: sqlite3.Connection, judgement: Judgement) -> list[str]:
    entry, logs = _entry(judgement), _logs(judgement)
    folder = entry["folder"]
    if _stands_there(connection, "entries", [entry]) and _stands_there(connection, "logs", logs):
        return []
    with transaction(connection):
        known = dict(connection.execute("SELECT file, sha256 FROM logs WHERE folder = ?", (folder,)))
        _remove(connection, folder)
        _insert(connection, "entries", [entry])
        _insert(connection, "logs", logs)
    now = {log["file"]: log["sha256"] for log in logs}
    return [
        f"{folder}/{file} "
        + (
            "was indexed, but no longer exists."
            if file not in now
            else f"changed since it was indexed (sha256 {now[file][:12]}, was {digest[:12]})."
        )
        for file, digest in known.items()
        if now.get(file) != digest
    ]


def _stands_there(connection: sqlite3.Connection, table: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """True if a table has exactly these rows of one folder. Unchanged rows are not written, which saves waiting for the
    disk."""
    if not rows:
        return False
    there = connection.execute(
        f"SELECT {', '.join(rows[0])} FROM {table} WHERE folder = ?", (rows[0]["folder"],)
    )
    return set(there) == {tuple(row.values()) for row in rows}


def _remove(connection: sqlite3.Connection, folder: str) -> None:
    for table in ("logs", "entries"):
        connection.execute(f"DELETE FROM {table} WHERE folder = ?", (folder,))


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        columns = ", ".join(rows[0])
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(
            f"INSERT INTO {table} ({columns}) VALUES ({marks})", [tuple(row.values()) for row in rows]
        )


def _gone(connection: sqlite3.Connection, path: Path, judged: set[str]) -> list[str]:
    """Entries in `path` or below it that were not judged now and have no log left."""
    top = _stored(path.resolve())
    above = "/" if top == "/" else f"{top}/"
    known = connection.execute(
        "SELECT entries.folder, file FROM entries LEFT JOIN logs USING (folder) WHERE entries.folder = ? "
        "OR substr(entries.folder, 1, ?) = ? ORDER BY entries.folder",
        (top, len(above), above),
    )
    there: dict[str, bool] = {}
    for folder, file in known:
        if folder not in judged:
            there[folder] = there.get(folder, False) or Path(folder, file or "").is_file()
    return [folder for folder, is_there in there.items() if not is_there]


def _entry(judgement: Judgement) -> dict[str, Any]:
    """Row of an entry. A plan is untrusted: a value of the wrong type is unknown."""
    location, score, energy = judgement.location, judgement.score, judgement.energy
    plan = location.plan_or_package
    job = next(iter(jobs_of(plan)), {})
    interval = score.ci95_minutes or (None, None)
    kind = _kind(location, score.benchmark)
    accelerators, accelerator = accelerators_of(location) if kind == PUBLISHED else (None, None)
    sweep, number = _sweep(location.folder.resolve())
    row: dict[str, Any] = {
        "folder": _folder(judgement),
        "kind": kind,
        "benchmark": score.benchmark,
        "variant": score.variant,
        "ruleset": score.ruleset,
        "rules_digest": score.ruleset_digest,
        "target": score.target,
        "batch_size": score.global_batch_size,
        "changes": _json(plan["changes"] if isinstance(plan.get("changes"), list) else []),
        "hyperparameters": _hyperparameters(plan, job),
        "submitter": score.submitter,
        "division": score.division,
        "system": score.system,
        "family": model_of(accelerator) if accelerator else None,
        "accelerators": accelerators,
        "host": location.machine.get("host"),
        "launcher": score.launcher,
        "ranks": score.world_size,
        "nodes": ran_or_planned(judgement.programs, "hosts", job.get("nodes")),
        "threads_per_rank": job.get("threads_per_rank"),
        "device": ran_or_planned(judgement.programs, "devices", job.get("device")),
        "precision": ran_or_planned(judgement.programs, "precision", job.get("precision")),
        "versions": _json(_versions(plan)),
        "revision": plan.get("revision"),
        "began": _began(judgement),
        "started_ms": gate.started_ms(judgement),
        "sweep": sweep,
        "job": number,
        "runs": len(score.runs),
        "runs_required": score.runs_required,
        "score_minutes": score.score_minutes,
        "low_minutes": interval[0],
        "high_minutes": interval[1],
        "joules": None if energy is None else energy.joules,
        "joules_above_idle": None if energy is None else energy.above_idle,
        "valid": score.valid,
        "reasons": _json(score.reasons),
    }
    row = {name: _value(value) for name, value in row.items()}
    row["task"] = _digest(row, TASK)
    row["environment"] = _digest(row, ENVIRONMENT)
    row["line"] = _digest(row, _line(row))
    row["comparable"] = comparable(judgement)
    return row


def comparable(judgement: Judgement) -> str:
    """Digest of the properties that entries of one gate share."""
    return _digest_of(gate.task_and_system(judgement))


def plan_and_host(judgement: Judgement) -> tuple[str, str, str | None, str]:
    """Digests of task and environment, host and folder of an entry, as the store has them."""
    row = _entry(judgement)
    return row["task"], row["environment"], row["host"], row["folder"]


def _logs(judgement: Judgement) -> list[dict[str, Any]]:
    return [
        {
            "folder": _folder(judgement),
            "file": _stored(Path(record.file).name),
            "sha256": record.sha256,
            "times_digest": record.times_digest,
            "run": _value(record.index) or 0,
            "seed": None if record.seed is None else str(record.seed),
            "status": record.status,
            "minutes": record.minutes,
            "converged": run.converged,
            "compliant": run.compliant,
            "counted": run.counted,
            "dropped": run.dropped,
            "findings": _json(_kinds(verdict)),
        }
        for record, run, verdict in zip(
            judgement.records, judgement.score.runs, judgement.verdicts, strict=True
        )
    ]


def _kinds(verdict: RunVerdict) -> list[list[Any]]:
    kinds: dict[tuple[str, str], list[Any]] = {}
    for found in verdict.findings:
        kind = kinds.setdefault((found.grade, found.check), [found.grade, found.check, 0, found.message])
        kind[2] += 1
    return list(kinds.values())


def _folder(judgement: Judgement) -> str:
    """Canonical name of a folder, whatever path led to it."""
    return _stored(judgement.location.folder.resolve())


def _kind(location: Location, benchmark: str) -> str:
    if location.plan_or_package:
        return CAMPAIGN
    official = not ruleset.load(location.ruleset).benchmark(benchmark).strict
    return PUBLISHED if location.system is not None and official else ALONE


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Key of an entry's line. A published entry without a description of its accelerators shares its line with those of
    the same system."""
    if row["kind"] != PUBLISHED:
        return LINE
    return LINE_OF_PUBLISHED if row["family"] and row["accelerators"] else (*LINE_OF_PUBLISHED, "system")


def _hyperparameters(plan: Mapping[str, Any], job: Mapping[str, Any]) -> str | None:
    config = mapping(job.get("config") or plan.get("config"))
    found = config.get("hyperparameters")
    return _json(found) if isinstance(found, dict) else None


def _versions(plan: Mapping[str, Any]) -> dict[str, str]:
    software = mapping(plan.get("software"))
    versions = {"python": software.get("python"), **mapping(software.get("packages"))}
    return {str(name): str(version) for name, version in versions.items() if version is not None}


def _began(judgement: Judgement) -> str | None:
    with suppress(TypeError, ValueError, OverflowError):
        created = datetime.fromisoformat(judgement.location.plan.get("created", ""))
        return created.astimezone(UTC).isoformat(timespec="seconds")
    started = [record.started_ms for record in judgement.records if record.started_ms is not None]
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(min(started) / 1000, UTC).isoformat(timespec="seconds")
    return None


def _sweep(folder: Path) -> tuple[str | None, int | None]:
    """Sweep of a campaign's job, and the job's number in it."""
    of_sweep = re.fullmatch(r"\d{1,9}", folder.name) and (folder.parent / "sweep.json").is_file()
    return (str(folder.parent), int(folder.name)) if of_sweep else (None, None)


def _digest(row: Mapping[str, Any], names: Iterable[str]) -> str:
    return _digest_of([row[name] for name in names])


def _digest_of(values: Iterable[Any]) -> str:
    return hashlib.sha256(_json(list(values)).encode()).hexdigest()[:12]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _value(value: Any) -> Any:
    """Value that SQLite can store."""
    if isinstance(value, (bool, int)):
        return int(value) if abs(value) <= LARGEST_INTEGER else None
    if isinstance(value, (str, Path)):
        return _stored(value)
    return value if isinstance(value, float) and abs(value) <= LARGEST_NUMBER else None


def _stored(text: str | Path) -> str:
    """Text that can be stored: file names may hold bytes that are no text, and logs halves of surrogates."""
    return str(text).encode("utf-8", errors="backslashreplace").decode()
