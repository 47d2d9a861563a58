"""Table of published entries of official rounds: system, samples to the target, and minutes of each.

The table is a CSV file; empty fields are unknown, additional columns are ignored. One comes with train_bench
(`shipped`; `published_entries.md` has its sources), others are derived by `train-bench index published`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.errors import LogError, RequestError
from train_bench.judge.statistics import olympic_mean
from train_bench.logs.record import SUCCESS, TRAIN_SAMPLES, RunRecord
from train_bench.progress import Unit
from train_bench.rules.ruleset import BenchmarkRules

SHIPPED = Path(__file__).with_name("published_entries.csv")

LONGEST_ACCELERATOR = 200
"""Length limit of an accelerator name."""

ROUND = re.compile(r"v?(\d+\.\d+)")

BYTE_ORDER_MARK = "\ufeff"
"""Byte order mark, which some spreadsheet programs write first."""

UNITS = Path(__file__).with_name("samples_per_unit.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row; unknown fields are None.

    round              as in `v1.1`
    accelerators       number in the whole system; 0 if it trained without any
    accelerator        name given by the submitter
    samples_to_target  mean over the runs that reached the target
    minutes            the score, without the RCP scaling factor
    eval_share         part of that time during an evaluation, with or without concurrent training
    init_minutes       mean time before the clock
    runs               number of published runs
    """

    round: str
    submitter: str
    system: str
    benchmark: str
    division: str | None = None
    accelerators: int | None = None
    accelerator: str | None = None
    global_batch: int | None = None
    samples_to_target: float | None = None
    minutes: float | None = None
    eval_share: float | None = None
    init_minutes: float | None = None
    runs: int | None = None

    @property
    def steps(self) -> float | None:
        """Optimizer steps to the target."""
        return _quotient(self.samples_to_target, self.global_batch)

    @property
    def samples_per_second(self) -> float | None:
        """Over the whole time, evaluations included."""
        return _quotient(self.samples_to_target, self.minutes and self.minutes * 60)


def shipped() -> tuple[Entry, ...]:
    """The table shipped with train_bench."""
    return _shipped()


@cache
def _shipped() -> tuple[Entry, ...]:
    return read(SHIPPED)


def read(path: Path) -> tuple[Entry, ...]:
    """Read the rows of a table in their order. Raises `RequestError` if it cannot be read or a row is invalid."""
    try:
        text = path.read_text(encoding="utf-8").removeprefix(BYTE_ORDER_MARK)
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read as a table of published entries: {error.strerror}."
        ) from error
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{path} is not a table of published entries: it is not UTF-8 text ({error.reason})."
        ) from error
    return tuple(_rows(path, text))


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Write a table in one step, its rows in the order of their names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in sorted(
        entries, key=lambda entry: (entry.round, entry.submitter, entry.system, entry.benchmark)
    ):
        writer.writerow([_cell(name, getattr(entry, name)) for name in COLUMNS])
    files.write(path, text.getvalue())


def rounded(entry: Entry) -> Entry:
    """The entry as a table holds it: rounded, and None for values that no row may have. Raises `LogError` for
    an invalid name."""
    values: dict[str, Any] = {}
    for name, convert in COLUMNS.items():
        text = _cell(name, getattr(entry, name)).strip()
        try:
            values[name] = convert(text) if text or name in REQUIRED else None
        except ValueError as error:
            if name in REQUIRED:
                raise LogError(f"The {name} of an entry is {text[:80]!r}, which is {error}.") from error
            values[name] = None
    return Entry(**values)


def _rows(path: Path, text: str) -> Iterable[Entry]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        heading = [name.strip() for name in next(reader, [])]
        _refuse_heading(path, heading)
        for row in reader:
            if any(row):
                yield _entry(path, reader.line_num, heading, row)
    except csv.Error as error:
        raise RequestError(
            f"{path}, line {reader.line_num}: this is not a row of a table ({plain(str(error))})."
        ) from error


def _refuse_heading(path: Path, heading: list[str]) -> None:
    missing = [name for name in REQUIRED if name not in heading]
    if missing:
        raise RequestError(
            f"{path} is not a table of published entries: its first line has no column {', '.join(missing)}."
        )
    twice = sorted({name for name in COLUMNS if heading.count(name) > 1})
    if twice:
        raise RequestError(f"{path}, line 1: the column {twice[0]} occurs twice.")


def _entry(path: Path, line: int, heading: list[str], row: list[str]) -> Entry:
    if len(row) != len(heading):
        raise RequestError(
            f"{path}, line {line}: there are {len(row)} columns where line 1 names {len(heading)} "
            f"(from {plain(heading[min(len(row), len(heading) - 1)])} on they do not fit)."
        )
    cells = {name: value.strip() for name, value in zip(heading, row, strict=True)}
    values: dict[str, Any] = {}
    for name, convert in COLUMNS.items():
        value = cells.get(name, "")
        try:
            values[name] = convert(value) if value or name in REQUIRED else None
        except ValueError as error:
            raise RequestError(
                f"{path}, line {line}, column {name}: {plain(value)[:80]!r} is {error}."
            ) from error
    return Entry(**_in_samples(values))


def _in_samples(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert samples to units by the `below` of the table of units."""
    samples = values["samples_to_target"]
    for unit in _units() if samples is not None else ():
        if unit["benchmark"] == values["benchmark"] and samples >= unit.get("below", math.inf):
            return {**values, "samples_to_target": samples / unit.get("units", unit.get("samples"))}
    return values


def samples_per_unit(rules: BenchmarkRules) -> float | None:
    """Training samples per unit of progress of a published benchmark; None if only its logs define it."""
    if rules.unit is Unit.SAMPLE:
        return 1
    number = _version(rules.ruleset.rpartition("-")[2])
    for unit in _units():
        first, last = unit.get("rounds", (None, None))
        within = first is None or _version(first) <= number <= _version(last)
        if unit["benchmark"] == rules.name and within:
            return float(1 / unit["units"] if "units" in unit else unit["samples"])
    return None


def samples_of(record: RunRecord, rules: BenchmarkRules) -> float | None:
    """Samples to the target, an epoch with those of the benchmark's data. If logs may count them in `train_samples`,
    the evaluation takes precedence if it has them: in other logs it has epoch 1."""
    position = record.convergence
    if position is None:
        return None
    logged = [item.position for item in record.evaluations if item.position is not None]
    if rules.counted == TRAIN_SAMPLES and logged and logged[-1] > 1:
        position = logged[-1]
    position = next((exactly for exactly in reversed(logged) if round(exactly, 3) == position), position)
    rule = rules.schedule_at(record.global_batch_size)
    trained = position - (rule.start if rule else 0.0)
    if rules.unit is Unit.STEP:
        return trained * record.global_batch_size if record.global_batch_size else None
    of_one = samples_per_unit(rules)
    return record.samples if of_one is None else trained * of_one


def round_of_ruleset(name: str) -> str:
    """`v1.1` of `training-1.1.0`."""
    return "v" + ".".join(name.rpartition("-")[2].split(".")[:2])


def minutes_of(records: Sequence[RunRecord], rules: BenchmarkRules) -> float | None:
    """Score in minutes by the round's rules: a run that did not reach the target is the slowest. None without such a
    mean, or if it is no time."""
    times = [
        record.minutes if record.status == SUCCESS and record.minutes is not None else math.inf
        for record in records
    ]
    mean = olympic_mean(times, rules.drop) if len(times) > 2 * rules.drop else math.inf
    return mean if 0 < mean < math.inf else None


@cache
def _units() -> Sequence[Mapping[str, Any]]:
    units: Sequence[Mapping[str, Any]] = yaml.safe_load(UNITS.read_text(encoding="utf-8"))
    return units


def _version(number: str) -> tuple[int, ...]:
    return tuple(map(int, number.split(".")))


def _name(value: str) -> str:
    if not value:
        raise ValueError("no name")
    return plain(value)


def _round(value: str) -> str:
    match = ROUND.fullmatch(value)
    if not match:
        raise ValueError("not a round such as v1.1")
    return f"v{match[1]}"


def _division(value: str) -> str:
    if value.casefold() not in ("closed", "open"):
        raise ValueError("neither closed nor open")
    return value.casefold()


def _number(value: str, lowest: float, highest: float) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("no number") from None
    if not lowest <= number <= highest:
        raise ValueError(f"not between {lowest:g} and {highest:g}")
    return number


def _positive(value: str) -> float:
    number = _number(value, 0, 1e18)
    if number == 0:
        raise ValueError("not more than 0")
    return number


def _whole(value: str) -> int:
    """Whole number; some write 256.0."""
    number = _number(value, 0, 1e18)
    if number != int(number):
        raise ValueError("not a whole number")
    return int(number)


def _whole_positive(value: str) -> int:
    number = _whole(value)
    if number == 0:
        raise ValueError("not more than 0")
    return number


COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "round": _round,
    "submitter": _name,
    "system": _name,
    "benchmark": _name,
    "division": _division,
    "accelerators": _whole,
    "accelerator": lambda value: plain(value)[:LONGEST_ACCELERATOR],
    "global_batch": _whole_positive,
    "samples_to_target": _positive,
    "minutes": _positive,
    "eval_share": lambda value: _number(value, 0, 1),
    "init_minutes": lambda value: _number(value, 0, 1e9),
    "runs": _whole_positive,
}
"""Columns of a table, and their parsers."""

REQUIRED = ("round", "submitter", "system", "benchmark")

assert tuple(COLUMNS) == tuple(field.name for field in fields(Entry))

DIGITS = {"samples_to_target": 0, "minutes": 4, "eval_share": 4, "init_minutes": 2}


def _cell(name: str, value: Any) -> str:
    """CSV cell of a value: short times keep as many digits as long ones."""
    if value is None:
        return ""
    if name == "minutes" and value < 0.1:
        return f"{value:.6g}"
    return f"{value:.{DIGITS[name]}f}" if name in DIGITS else str(value)


def _quotient(number: float | None, by: float | None) -> float | None:
    return number / by if number is not None and by else None
