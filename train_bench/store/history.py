"""History queries: scores over dates and revisions, line by line, and a user's own SELECT."""

from __future__ import annotations

import math
import re
import sqlite3
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from train_bench.compare import gate
from train_bench.compare.comparison import logs_of, usable
from train_bench.compare.independence import digests
from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.errors import RequestError, UnknownName
from train_bench.judge.entry import Judgement
from train_bench.judge.score import ScoredRun
from train_bench.judge.state import state_of
from train_bench.logs.log import NO_CONTENT
from train_bench.store import schema
from train_bench.store.feed import comparable, plan_and_host
from train_bench.store.schema import COLUMNS, LARGEST_NUMBER, VALUE_BYTES, to_read, too_long

EQUAL = (
    *(
        "kind",
        "line",
        "task",
        "ruleset",
        "batch_size",
        "submitter",
        "division",
        "system",
        "family",
        "accelerators",
    ),
    *("host", "environment", "launcher", "ranks", "nodes", "device", "precision", "sweep"),
)

FILTERS: Mapping[str, str] = {
    "benchmark": "(benchmark = ?1 OR variant = ?1)",
    **{name: f"CAST({name} AS TEXT) = ?1" for name in EQUAL},
    "revision": "substr(revision, 1, length(?1)) = ?1",
    "since": "began >= ?1",
    "until": "substr(began, 1, length(?1)) <= ?1",
    "valid": "valid = (?1 = 'true')",
}
"""Filters of a history, as SQL. `since` and `until` are dates such as 2026-11-22, or longer."""

OF_LINE = (
    *(
        "line",
        "kind",
        "benchmark",
        "variant",
        "ruleset",
        "target",
        "batch_size",
        "submitter",
        "division",
        "system",
    ),
    *("family", "accelerators", "launcher", "ranks", "nodes", "device", "precision"),
)
OF_POINT = (
    *(
        "folder",
        "began",
        "ruleset",
        "system",
        "batch_size",
        "revision",
        "environment",
        "host",
        "sweep",
        "job",
    ),
    *("runs", "runs_required", "score_minutes", "low_minutes", "high_minutes"),
    *("joules", "joules_above_idle"),
)
FAILED = "(SELECT count(*) FROM logs WHERE logs.folder = entries.folder AND counted AND NOT (converged AND compliant))"
"""Runs of an entry that make the result and count as the slowest, because they failed."""

READ = (*dict.fromkeys((*OF_LINE, *OF_POINT)), "valid", "reasons", "versions")

COPIES = """\
SELECT logs.folder, min(other.folder) FROM logs
JOIN (SELECT {digest} FROM logs WHERE {digest} <> ? GROUP BY {digest} HAVING count(DISTINCT folder) > 1)
USING ({digest})
JOIN logs AS other USING ({digest})
WHERE other.folder < logs.folder GROUP BY logs.folder"""
"""Entries that share a log with another, by one of its digests, and the first of these others."""

READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)

ANSWER_BYTES = 2**28
"""Memory of the rows that a user's own SELECT may give."""

FINISHING_SECONDS = 1.0
"""Time in which a query that reached its limit says so itself."""


def history(path: Path, filters: Sequence[str]) -> dict[str, Any]:
    """The lines of the store at `path` that have a point for which all filters (`NAME=VALUE`) hold, with those points
    by date.

    A point is `joined` with the others of its line unless it is not valid or has a log of another entry. Raises
    `RequestError` for invalid filters.
    """
    conditions, values = _conditions(filters)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT {', '.join(READ)}, {FAILED} FROM entries{where} ORDER BY benchmark, variant, line, began, folder"
    with to_read(path) as connection:
        copies = _copies(connection)
        rows = [_row(READ, row[:-1]) | {"failed": int(row[-1])} for row in connection.execute(query, values)]
        lines: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            lines.setdefault(row["line"], []).append(row)
        return {"store": str(path), "lines": [_line(points, copies) for points in lines.values()]}


def _copies(connection: sqlite3.Connection) -> dict[str, str]:
    """Entries with a copy of a log of another, in the same or in other bytes, each with that other."""
    copies: dict[str, str] = {}
    for digest in ("sha256", "times_digest"):
        for folder, other in connection.execute(COPIES.format(digest=digest), (NO_CONTENT,)):
            copies[folder] = min(other, copies.get(folder, other))
    return copies


def _row(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """A row by its columns. Raises `ValueError` for a value of another type, and for numbers that no result has."""
    row = dict(zip(names, values, strict=True))
    for name, value in row.items():
        kind, nullable = COLUMNS[name]
        if value is None and nullable:
            continue
        outside = isinstance(value, float) and not abs(value) <= LARGEST_NUMBER
        if not isinstance(value, kind) or outside:
            raise ValueError(f"{name} is {value!r:.80}")
    return row


def select(path: Path, query: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Columns and rows of one SELECT. Raises `RequestError` for wrong SQL, for anything but a SELECT, for an answer
    above `ANSWER_BYTES` and after `QUERY_SECONDS`: nothing is written, and no other file is opened.

    A function of SQL may run for minutes where no progress handler is asked (`printf('%.*c', ...)`, `instr` and
    `replace` of long texts, a sort of long rows). So the query has a thread of its own, for which nobody waits: this
    one takes signals and ends in time.
    """
    answer: Future[tuple[tuple[str, ...], list[tuple[Any, ...]]]] = Future()

    def ask() -> None:
        try:
            answer.set_result(_select(path, query))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="query", daemon=True).start()
    try:
        return answer.result(schema.QUERY_SECONDS + FINISHING_SECONDS)
    except TimeoutError as error:
        raise too_long(path) from error


def _select(path: Path, query: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    with to_read(path) as connection:
        connection.set_authorizer(_authorize)
        try:
            cursor = connection.execute(query)
            for row in cursor:
                rows.append(tuple(map(_plain_value, row)))
                size += sys.getsizeof(rows[-1]) + sum(map(sys.getsizeof, rows[-1]))
                if size > ANSWER_BYTES:
                    raise RequestError(
                        f"The answer is larger than {ANSWER_BYTES >> 20} MiB; ask for fewer columns, or add LIMIT N."
                    )
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_TOOBIG:
                raise RequestError(
                    f"A value of the query is larger than {VALUE_BYTES >> 20} MiB; ask for less, for example by "
                    "substr(COLUMN, 1, 1000)."
                ) from error
            raise RequestError(
                f"Invalid SQL: {plain(str(error))}. Give one SELECT; the tables are entries and logs "
                "(SELECT sql FROM sqlite_master prints their columns)."
            ) from error
    if cursor.description is None:
        raise RequestError("The statement is not a SELECT; give one SELECT on the tables entries and logs.")
    return tuple(column[0] for column in cursor.description), rows


OF_RUN = ("run", "file", "seed", "status", "minutes", "converged", "counted", "dropped", "findings")


def runs(path: Path, folders: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Runs of each of these entries."""
    query = f"SELECT {', '.join(OF_RUN)} FROM logs WHERE folder = ? ORDER BY run, file"
    with to_read(path) as connection:
        return [
            [_with_findings(_row(OF_RUN, row)) for row in connection.execute(query, (folder,))]
            for folder in folders
        ]


def _with_findings(run: dict[str, Any]) -> dict[str, Any]:
    for grade, check, count, message in files.parse_json(run["findings"].encode("utf-8", "backslashreplace")):
        if not all(isinstance(text, str) for text in (grade, check, message)) or not isinstance(count, int):
            raise ValueError(f"findings of {run['file']} are of another type")
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Stored runs of an entry, with the fields that a gate needs; fields that a store does not keep are None."""

    runs: tuple[ScoredRun, ...]


def earlier(path: Path, judged: Judgement, last: int) -> list[tuple[str, Earlier]]:
    """The `last` valid entries of the task and system of `judged` whose first run started before its own, by that
    time, each with its folder."""
    with to_read(path) as connection:
        folders = connection.execute(
            "SELECT folder FROM entries WHERE comparable = ? AND valid AND started_ms < ? "
            "ORDER BY started_ms DESC, folder DESC LIMIT ?",
            (comparable(judged), gate.started_ms(judged), last),
        ).fetchall()
        return [(folder, _runs(connection, folder)) for (folder,) in reversed(folders)]


MOST_CAMPAIGNS = 20
"""Campaigns that the history of a machine has, the latest."""


def campaigns_like(path: Path, judged: Judgement) -> list[list[float]]:
    """Logarithms of times of each other valid campaign of the store at `path` with the plan of an entry on its host. Of
    two campaigns that alternated, the first: they share the state of the machine."""
    task, environment, host, own = plan_and_host(judged)
    known = digests(*judged.score.runs)
    found = []
    with to_read(path) as connection:
        query = (
            "SELECT folder FROM entries WHERE task = ? AND environment = ? AND host = ? AND folder <> ? AND valid "
            "ORDER BY started_ms DESC, folder DESC LIMIT ?"
        )
        folders = [
            folder for (folder,) in connection.execute(query, (task, environment, host, own, MOST_CAMPAIGNS))
        ]
        for folder in folders:
            partner = str(Path(folder).with_name("a"))
            if Path(folder).name == "b" and partner in (*folders, own):
                continue
            runs = _runs(connection, folder)
            digests_of_runs = digests(*runs.runs)
            if known.isdisjoint(digests_of_runs):
                found.append(logs_of(usable(runs), "minutes") or [])
            known |= digests_of_runs
    return [logs for logs in found if len(logs) > 1]


def _runs(connection: sqlite3.Connection, folder: str) -> Earlier:
    kept = (
        "run",
        "file",
        "seed",
        "status",
        "minutes",
        "converged",
        "compliant",
        "counted",
        "dropped",
        "sha256",
        "times_digest",
    )
    query = f"SELECT {', '.join(kept)} FROM logs WHERE folder = ? ORDER BY run, file"
    runs = []
    for row in connection.execute(query, (folder,)):
        run = _row(kept, row)
        runs.append(
            ScoredRun(
                index=run["run"],
                file=run["file"],
                seed=None if run["seed"] is None else int(run["seed"]),
                status=run["status"],
                converged=bool(run["converged"]),
                compliant=bool(run["compliant"]),
                officially_compliant=bool(run["compliant"]),
                minutes=run["minutes"],
                quality=None,
                convergence=None,
                samples=None,
                samples_per_second=None,
                processor_lost=None,
                counted=bool(run["counted"]),
                dropped=bool(run["dropped"]),
                sha256=run["sha256"],
                times_digest=run["times_digest"],
            )
        )
    return Earlier(runs=tuple(runs))


def _authorize(action: int, argument: str | None, function: str | None, *_: str | None) -> int:
    reads = action in READING and function != "load_extension"
    return sqlite3.SQLITE_OK if reads else sqlite3.SQLITE_DENY


def _plain_value(value: Any) -> Any:
    """Value as strict JSON can hold it."""
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _conditions(filters: Iterable[str]) -> tuple[list[str], list[str]]:
    conditions, values = [], []
    for text in filters:
        name, equals, value = text.partition("=")
        if not equals:
            raise RequestError(
                f"'{plain(text)}' is not a filter; write NAME=VALUE, for example benchmark=NAME."
            )
        if name not in FILTERS:
            raise UnknownName(what="filter", name=plain(name), known=FILTERS)
        if name == "valid" and value not in ("true", "false"):
            raise RequestError(f"valid is '{plain(value)}'; it may be true or false.")
        if name in ("since", "until") and not re.match(r"\d{4}(-\d\d){0,2}(T|$)", value):
            raise RequestError(f"{name} is '{plain(value)}'; write a date such as 2026-11-22.")
        values.append(value.encode("utf-8", errors="backslashreplace").decode())
        conditions.append(FILTERS[name].replace("?1", f"?{len(values)}"))
    return conditions, values


def _line(rows: Sequence[Mapping[str, Any]], copies: Mapping[str, str]) -> dict[str, Any]:
    """Properties that all points of a line share; None where they differ."""
    rows = sorted(rows, key=lambda row: _round(row["ruleset"]))  # clocks of published logs may be wrong
    first = rows[0]
    shared = {
        name: first[name] if all(row[name] == first[name] for row in rows) else None for name in OF_LINE
    }
    points = []
    before: Mapping[str, Any] | None = None
    for row in rows:
        point = {name: row[name] for name in OF_POINT}
        point["failed"] = row["failed"]
        point["versions"] = _parsed(row["versions"], dict)
        point["valid"] = bool(row["valid"])
        point["reasons"] = _parsed(row["reasons"], list)
        point["state"] = state_of(point["valid"], point["reasons"])
        point["copy_of"] = copies.get(row["folder"])
        point["joined"] = point["valid"] and point["copy_of"] is None and row["score_minutes"] is not None
        point["other_versions"] = _others(before["versions"], point["versions"]) if before else []
        before = point if point["joined"] else before
        points.append(point)
    return shared | {"points": points}


@cache
def _parsed(text: str, kind: type) -> Any:
    parsed = files.parse_json(text.encode("utf-8", errors="backslashreplace"))
    inner = parsed.values() if isinstance(parsed, dict) else parsed
    if not isinstance(parsed, kind) or not all(isinstance(one, str | None) for one in inner):
        raise ValueError(f"{text:.80} is of another type")
    return parsed


@cache
def _round(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", name)))


def _others(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Versions that changed since the previous joined point, in words."""
    if before == now:
        return []
    return [
        f"{name} {now.get(name, 'none')} instead of {before.get(name, 'none')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
