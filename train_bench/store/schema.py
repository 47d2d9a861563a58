"""SQLite schema of the store: one file, derived from logs.

Everything in it can be derived again: no date of indexing and no counter, so that two stores of the same logs have the
same rows. One journal that SQLite makes and removes is used, and no write-ahead log: a store may lie on a file system
of several hosts or be read where nothing may be written.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from train_bench.core.escape import plain
from train_bench.errors import RequestError, WriteError

APPLICATION = 0x74624853
VERSION = 3

LARGEST_NUMBER = 1e18
"""Largest minutes and joules that a store has; a larger figure of a campaign is unknown there."""

WAIT_SECONDS = 60.0
"""Lock timeout of a writer; each holds the file for one campaign at a time."""

QUERY_SECONDS = 30.0
"""Time limit of reading a store: a file of somebody else may ask for any amount of work."""

STEPS = 100_000
"""Steps of SQLite after which a query can be interrupted."""

VALUE_BYTES = 2**26
"""Largest value that is read from a store or made by a query; the findings of a run are thousands of bytes."""

MEMORY_BYTES = 2**29
"""Memory of SQLite in a process that reads a store. It sorts there, and writes no temporary files, of which a query
could fill a disk."""

INVALID_VALUES = (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""Errors raised by values of another type or size."""

SYNCHRONOUS = "NORMAL"
"""Synchronous mode. A loss of power may damage the store, which can be derived again."""

ENTRIES = """\
CREATE TABLE entries (
    folder TEXT PRIMARY KEY,       -- where the logs lie
    kind TEXT NOT NULL,            -- campaign, published (an entry of an official round) or logs (that came alone)
    line TEXT NOT NULL,            -- what may be one line of a history: digest of all that its entries share
    task TEXT NOT NULL,            -- digest of what is trained: the columns up to hyperparameters
    benchmark TEXT NOT NULL,
    variant TEXT,
    ruleset TEXT NOT NULL,
    rules_digest TEXT NOT NULL,
    target TEXT NOT NULL,
    batch_size INTEGER,            -- null where runs differ
    changes TEXT NOT NULL,         -- JSON: what was changed of the benchmark as it is defined
    hyperparameters TEXT,          -- JSON; null for logs without a plan
    submitter TEXT,
    division TEXT,
    system TEXT,
    family TEXT,                   -- of published entries: what all spellings of their accelerator have in common
    accelerators INTEGER,          -- of published entries: in the whole system
    host TEXT,                     -- of campaigns: host 0
    environment TEXT NOT NULL,     -- digest of the columns up to versions
    launcher TEXT,
    ranks INTEGER,
    nodes INTEGER,
    threads_per_rank INTEGER,
    device TEXT,
    precision TEXT,
    versions TEXT NOT NULL,        -- JSON: python and packages
    revision TEXT,
    began TEXT,                    -- UTC: when the campaign was planned, else when the first run started
    started_ms INTEGER,            -- when the first run started, in milliseconds since 1970
    comparable TEXT NOT NULL,      -- digest of the task and system that entries of one gate share
    sweep TEXT,                    -- folder of the sweep that it is a job of
    job INTEGER,
    runs INTEGER NOT NULL,
    runs_required INTEGER NOT NULL,
    score_minutes REAL,
    low_minutes REAL,              -- 95 % interval of the score
    high_minutes REAL,
    joules REAL,                   -- to the target, mean of the kept runs; null without power logs
    joules_above_idle REAL,
    valid INTEGER NOT NULL,
    reasons TEXT NOT NULL          -- JSON: why it is not valid
) WITHOUT ROWID"""

LOGS = """\
CREATE TABLE logs (
    folder TEXT NOT NULL,
    file TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    times_digest TEXT,             -- equal in copies that were moved in time or written anew; null without times
    run INTEGER NOT NULL,
    seed TEXT,
    status TEXT NOT NULL,
    minutes REAL,
    converged INTEGER NOT NULL,
    compliant INTEGER NOT NULL,
    counted INTEGER NOT NULL,      -- belongs to the runs that make the result
    dropped INTEGER NOT NULL,      -- left out of the mean as an extreme
    findings TEXT NOT NULL,        -- JSON: each kind as [grade, check, how many, the first in words]
    PRIMARY KEY (folder, file)
) WITHOUT ROWID"""

KINDS = {"TEXT": (str,), "INTEGER": (int,), "REAL": (int, float)}
COLUMNS = {
    name: (KINDS[kind], " NOT NULL" not in bound)
    for name, kind, bound in re.findall(
        r"^ {4}(\w+) (TEXT|INTEGER|REAL)([^,\n]*)", f"{ENTRIES}\n{LOGS}", re.MULTILINE
    )
}
"""Types of the values of each column, and whether it may be null."""

STATEMENTS = (
    ENTRIES,
    LOGS,
    "CREATE INDEX entries_of_a_line ON entries (line, began)",
    "CREATE INDEX entries_of_a_benchmark ON entries (benchmark)",
    "CREATE INDEX entries_of_a_variant ON entries (variant)",
    "CREATE INDEX logs_of_a_content ON logs (sha256, folder)",
    "CREATE INDEX logs_of_equal_times ON logs (times_digest, folder)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


@contextmanager
def to_write(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the store for writing; create it if there is none. Raises `RequestError` for a file that is no store,
    `WriteError` if it cannot be written."""
    _require_file(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            with transaction(connection):
                if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    for statement in STATEMENTS:
                        connection.execute(statement)
            _refuse_others(path, connection)
            yield connection
    except sqlite3.DatabaseError as error:
        raise _store_error(path, error, "written") from error
    except OSError as error:
        raise WriteError(f"The store {path} cannot be written: {error.strerror}.") from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Context: one transaction; other writers wait."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class QueryLimit:
    """Progress handler of SQLite: interrupts after `QUERY_SECONDS`, and lets Python handle signals meanwhile."""

    def __init__(self) -> None:
        self._end = time.monotonic() + QUERY_SECONDS

    @property
    def over(self) -> bool:
        """True once the time is up."""
        return time.monotonic() > self._end

    def __call__(self) -> int:
        return int(self.over)


def raise_interrupted(path: Path, error: sqlite3.Error, limit: QueryLimit) -> None:
    """Raise for a query that was interrupted: `RequestError` by the limit, else `KeyboardInterrupt`, because the signal
    came while SQLite called back."""
    if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
        return
    if limit.over:
        raise too_long(path) from error
    raise KeyboardInterrupt from error


def too_long(path: Path) -> RequestError:
    """Error of a reading that reached `QUERY_SECONDS`."""
    return RequestError(
        f"Reading the store {path} takes more than {QUERY_SECONDS:g} s; ask for less, or index the logs again."
    )


@contextmanager
def to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the store read-only. Raises `RequestError` if there is none."""
    if not path.exists():
        raise RequestError(
            f"There is no store {path}; make one by `train-bench index DIR ... --store {path}`, or by run "
            "store=FILE."
        )
    _require_file(path)
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS)) as connection:
            limit = QueryLimit()
            connection.set_progress_handler(limit, STEPS)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA hard_heap_limit = {MEMORY_BYTES}")
            connection.execute("PRAGMA trusted_schema = 0")
            _refuse_others(path, connection)
            yield connection
    except sqlite3.OperationalError as error:
        raise_interrupted(path, error, limit)
        raise _store_error(path, error, "read") from error
    except MemoryError as error:
        raise RequestError(
            f"Reading the store {path} takes more than {MEMORY_BYTES >> 20} MiB of memory; ask for less, for example "
            "by LIMIT N without ORDER BY."
        ) from error
    except INVALID_VALUES as error:
        raise RequestError(
            f"The store {path} has values of another type ({plain(repr(error))[:200]}); remove it and index the logs "
            "again."
        ) from error
    except sqlite3.DatabaseError as error:
        raise _store_error(path, error, "read") from error


def _require_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise RequestError(f"{path} is not a file; give a file name for the store, for example results.db.")


def _refuse_others(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise RequestError(f"{path} is not a store of train_bench; give another file.")
    if version != VERSION:
        raise RequestError(
            f"{path} is a store of another version of train_bench ({version}; this version reads "
            f"{VERSION}); remove it and index the logs again."
        )
    known = {*STATEMENTS}
    for kind, name, statement in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        if statement is not None and statement not in known and not str(name).startswith("sqlite_stat"):
            raise RequestError(
                f"{path} is not a store of train_bench: it has the {plain(str(kind))} {plain(str(name))[:80]}, which "
                "no store has; give another file, or index the logs again."
            )


def _store_error(path: Path, error: sqlite3.DatabaseError, done: str) -> RequestError | WriteError:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_NOTADB:
        return RequestError(f"{path} is not a store of train_bench; give another file.")
    if code == sqlite3.SQLITE_CORRUPT:
        return RequestError(f"The store {path} is damaged ({error}); remove it and index the logs again.")
    return WriteError(f"The store {path} cannot be {done}: {plain(str(error))}.")
