"""Readers of other people's runs: logs as text, MLLOG logs, and tables of runs in CSV or JSON. All of it is data."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.errors import LogError, NoLogs, RequestError
from train_bench.logs import log
from train_bench.logs.record import EVALUATION

QUALITIES = (
    "val_loss",
    "core_metric",
    "core_score",
    "val_acc",
    "val_accuracy",
    "eval_accuracy",
    "accuracy",
    "acc",
    "core",
    "quality",
    "score",
    "val_bpb",
    "loss",
    "tel",
)
TIMES = (
    "train_time",
    "total_training_time",
    "training_time",
    "time_seconds",
    "wall_time",
    "time",
    "seconds",
    "minutes",
    "hours",
    "steps",
    "step",
)
"""Names that a final quality and a time have in logs and tables, the likeliest first; case does not count."""

SECONDS = {
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hours": 3600.0,
}
STEPS = ("step", "steps")
COUNTS = (*STEPS, "epoch", "epochs", "samples", "tokens")
"""Units of time that names end on or values carry; and names of costs that are no time."""

TEXT_ENDINGS = (".txt", ".log", ".out", ".stdout", ".csv", ".tsv", ".json", ".jsonl")
TELLING_COURSE = 4
"""Evaluations from which on two logs that have all of them alike are of one run."""

LARGEST_BYTES = 2**26
MOST_FILES = 2000

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b"
PAIR = re.compile(
    rf"\b([A-Za-z]\w*)[ \t]{{0,4}}[:= ][ \t]{{0,20}}({NUMBER})(?:/\d+)?"
    r"(ms|sec|seconds|s|min|minutes|hours|h)?(?![\w.])",
    re.IGNORECASE,
)
"""A name, a number and perhaps its unit: `val_loss:3.2784`, `train_time=80610ms`, `core_metric 0.2585`."""

SEPARATOR = re.compile(r"^={20,}[ \t]*$", re.MULTILINE)
GPU = re.compile(r"^\|\s+\d+\s+(?!N/A)([A-Za-z][^|]*?)\s{2,}", re.MULTILINE)
"""Row of a GPU in the table of nvidia-smi; rows of processes have no instance (N/A) there."""
RUNNING = re.compile(r"^Running (Python|PyTorch|Triton)(?: version)? (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a record: its last quality (NaN: none that is a number), its time in seconds or its cost as a count
    (None: unknown), all qualities of its log in their order, and what else that says of how it was measured."""

    source: str
    quality: float
    time: float | None = None
    course: tuple[float, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Runs of one record in the order of their files, the names of their quality and time, whether that is a count,
    the files that have no run, and those with the run of another file, which counts once."""

    path: Path
    runs: Sequence[Run]
    quality: str
    time: str | None
    counted: bool = False
    without: Sequence[str] = ()
    repeated: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the quality and of the time; None where the usual ones are looked for. `at` is the step whose evaluation
    counts; None: the last one."""

    quality: str | None = None
    time: str | None = None
    at: int | None = None

    def quality_in(self, known: Mapping[str, Any]) -> str | None:
        """Name of the quality among known names in lower case."""
        return _first(self.quality, QUALITIES, known)

    def time_in(self, known: Mapping[str, Any]) -> str | None:
        """Name of the time among known names in lower case."""
        if self.time is None:
            ended = (name for name in known if _unit_of(name) is not None and "time" in name)
            return _first(None, TIMES, known) or next(ended, None)
        return _first(self.time, (), known)


def _first(asked: str | None, usual: Sequence[str], known: Mapping[str, Any]) -> str | None:
    return next((name for name in ((asked.lower(),) if asked else usual) if name in known), None)


@dataclass(slots=True)
class _Found:
    quality: str
    time: str | None
    run: Run


def read_record(path: Path, names: Names) -> Record:
    """Read the runs of a record: a folder of logs, one log, or a table of runs. Raises `NoLogs` where there is none,
    and `LogError` for a file that cannot be read."""
    found: list[_Found] = []
    without = []
    for file in _files(path):
        of_file = list(_runs(file, names))
        found += of_file
        if not of_file and path.is_dir():
            without.append(str(file.relative_to(path)))
    if not found:
        asked = f"'{names.quality}'" if names.quality else f"quality (one of {', '.join(QUALITIES)})"
        where = "" if names.at is None else f" at step {names.at}"
        raise NoLogs(
            f"{path} has no run with a {asked}{where}. Give a folder of logs or a table of runs, and name the quality "
            "as the logs do (--quality val_loss)."
        )
    qualities = list(dict.fromkeys(one.quality for one in found))
    if len(qualities) > 1:
        raise LogError(
            f"{path} has runs with different qualities ({', '.join(qualities[:4])}); name the one that counts "
            f"(--quality {qualities[0]})."
        )
    times = list(dict.fromkeys(one.time for one in found if one.time is not None))
    if len(times) > 1:
        raise LogError(
            f"{path} has runs with different times ({', '.join(times[:4])}); name the one that counts (--time "
            f"{times[0]})."
        )
    time = times[0] if times else None
    courses = {one.run.course: one.run for one in reversed(found) if len(one.run.course) >= TELLING_COURSE}
    runs = [one.run for one in found if courses.get(one.run.course, one.run) is one.run]
    return Record(
        path=path,
        runs=runs,
        quality=qualities[0],
        time=time,
        counted=time in COUNTS,
        without=without,
        repeated=[one.run.source for one in found if one.run not in runs],
    )


def _files(path: Path) -> list[Path]:
    """Files that may hold runs. Links are not followed: a folder of somebody else may point anywhere."""
    if not path.is_dir():
        return [path]
    found = []
    for one in sorted(path.rglob("*")):
        if one.suffix.lower() in TEXT_ENDINGS and one.is_file() and not one.is_symlink():
            found.append(one)
            if len(found) > MOST_FILES:
                raise RequestError(
                    f"{path} has more than {MOST_FILES} logs and tables; give the folder of one record."
                )
    return found


def _runs(file: Path, names: Names) -> Iterator[_Found]:
    try:
        content = files.read_bytes(file, largest=LARGEST_BYTES)
    except FileNotFoundError as error:
        raise NoLogs(f"There is no {file}; give a folder of logs, a log, or a table of runs.") from error
    except OSError as error:
        raise LogError(f"{file} cannot be read: {error.strerror}.") from error
    text = content.decode("utf-8", errors="replace")
    if log.TOKEN in text:
        yield from _mllog(file, names)
        return
    read = READERS.get(file.suffix.lower(), _text)
    yield from read(str(file), text, names)


def _text(source: str, text: str, names: Names) -> Iterator[_Found]:
    """The run of a log in words. What is above a line of equals signs is the program, where a log begins with it."""
    program, *parts = SEPARATOR.split(text)
    found = _last_pairs("\n".join(parts), names) if parts else None
    if found is None:
        found, program = _last_pairs(text, names), ""
    if found is None:
        return
    quality, value, course, time, taken, step = found
    facts = {name.lower(): version for name, version in RUNNING.findall(text)}
    if gpus := GPU.findall(text):
        facts["gpus"] = " + ".join(f"{gpus.count(one)} x {plain(one)[:60]}" for one in dict.fromkeys(gpus))
    if program.strip():
        facts["program"] = hashlib.sha256(program.encode()).hexdigest()[:12]
    if step is not None:
        facts["steps"] = step
    yield _Found(quality, time, Run(source=source, quality=value, time=taken, course=course, facts=facts))


def _last_pairs(
    text: str, names: Names
) -> tuple[str, float, tuple[float, ...], str | None, float | None, str | None] | None:
    """Name and value of the quality of a log, its course, the time on the line of the quality, else the last time of
    all, and its step."""
    last: dict[str, tuple[float, str | None]] = {}
    together: dict[str, tuple[float, str | None]] = {}
    quality = None
    courses: dict[str, list[float]] = {}
    for line in text.splitlines():
        pairs = {
            name.lower(): (float(value), unit.lower() if unit else None)
            for name, value, unit in PAIR.findall(line[:2000])
        }
        if not pairs:
            continue
        named = names.quality_in(pairs)
        if named is not None:
            courses.setdefault(named, []).append(pairs[named][0])
        if names.at is not None and not any(pairs[name][0] == names.at for name in STEPS if name in pairs):
            continue
        last |= pairs
        if named is not None and (quality is None or _rank(named) <= _rank(quality)):
            quality, together = named, dict(pairs)
    if quality is None:
        return None
    time = names.time_in(together) or names.time_in({name: None for name in last if name != quality})
    value, unit = (together if time in together else last)[time] if time is not None else (None, None)
    step = next((f"{together[name][0]:g}" for name in STEPS if name in together), None)
    course = tuple(courses[quality])
    return quality, together[quality][0], course, time, _in_seconds(time, value, unit), step


def _rank(name: str) -> int:
    return QUALITIES.index(name) if name in QUALITIES else -1


def _in_seconds(name: str | None, value: float | None, unit: str | None) -> float | None:
    if name is None or value is None:
        return None
    return value if name in COUNTS else value * SECONDS[unit or _unit_of(name) or "s"]


def _unit_of(name: str) -> str | None:
    """Unit that a name ends on: `train_time_ms`, `minutes`."""
    ending = name.rpartition("_")[2]
    return ending if ending in SECONDS else None


def _mllog(file: Path, names: Names) -> Iterator[_Found]:
    """The run of an MLLOG log: its last evaluation, and the time from `run_start` to `run_stop`."""
    read = log.read(file)
    values = [event for event in read.events.of(*EVALUATION) if _number(event.value) is not None]
    starts, stops = ([*read.events.of(key)] for key in ("run_start", "run_stop"))
    if not values or (names.quality or values[-1].key).lower() != values[-1].key:
        return
    time = (stops[-1].time_ms - starts[0].time_ms) / 1000 if starts and stops else None
    facts = {
        key: plain(str(events[-1].value))[:60]
        for key in ("submission_platform", "global_batch_size")
        if (events := [*read.events.of(key)])
    }
    run = Run(source=str(file), quality=float(values[-1].value), time=time, facts=facts)
    yield _Found(values[-1].key, None if time is None else "run_stop - run_start", run)


def _csv(source: str, text: str, names: Names) -> Iterator[_Found]:
    first = text.lstrip().partition("\n")[0]
    delimiter = max("\t;,", key=first.count)
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise LogError(f"{source} cannot be read as a table: {error}.") from error
    yield from _rows(source, rows, names)


def _json(source: str, text: str, names: Names) -> Iterator[_Found]:
    """Runs as a list of objects, in `runs` of an object, or as an object of lists of equal length."""
    try:
        content = files.parse_json(text.encode())
    except (ValueError, RecursionError) as error:
        raise LogError(f"{source} cannot be read as JSON: {error}.") from error
    if isinstance(content, dict) and isinstance(content.get("runs"), list):
        content = content["runs"]
    if isinstance(content, dict):
        columns = {name: values for name, values in content.items() if isinstance(values, list)}
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            raise LogError(
                f"{source} has columns of different lengths ({', '.join(map(str, sorted(lengths)[:4]))}); each run has "
                "one value in each."
            )
        content = (
            [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            if columns
            else [content]
        )
    yield from _rows(source, content if isinstance(content, list) else [], names)


def _json_lines(source: str, text: str, names: Names) -> Iterator[_Found]:
    """The run of a log with an object in each line: its last quality."""
    last: dict[str, Any] = {}
    for line in text.splitlines():
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            continue
        last |= content if isinstance(content, dict) else {}
    yield from _rows(source, [last], names)


def _rows(source: str, rows: Sequence[Any], names: Names) -> Iterator[_Found]:
    for place, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            continue
        known = {str(name).strip().lower(): value for name, value in row.items() if name is not None}
        quality = names.quality_in(known)
        value = None if quality is None else _number(known[quality])
        if quality is None or value is None:
            continue
        time = names.time_in({name: value for name, value in known.items() if name != quality})
        taken = None if time is None else _number(known[time])
        facts = {
            name: plain(str(said))[:60]
            for name, said in known.items()
            if name not in (quality, time) and isinstance(said, str) and said and _number(said) is None
        }
        run = Run(source=f"{source}:{place}", quality=value, time=_in_seconds(time, taken, None), facts=facts)
        yield _Found(quality, time, run)


def _number(value: Any) -> float | None:
    """A number, or one that is written as text; NaN and infinity are numbers of runs that diverged."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < 1e15 else math.nan


READERS: dict[str, Callable[[str, str, Names], Iterator[_Found]]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".json": _json,
    ".jsonl": _json_lines,
}
"""Readers by the ending of a file; any other is a log in words."""
