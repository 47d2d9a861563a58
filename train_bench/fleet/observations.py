"""Observations of a fleet: machine, clock and trainings of each node, and trainings of node groups.

A training is read from its log, as any result is; facts of a node are untrusted data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.core.finite_number import finite_number
from train_bench.errors import LogError
from train_bench.forecast import log_pace
from train_bench.logs.log import Log
from train_bench.logs.record import DIED, read_record
from train_bench.progress import Unit
from train_bench.rules.ruleset import BenchmarkRules

LONGEST_FIELD = 200
"""Length limit of a node's values in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One completed training.

    seconds from the start of its clock to its stop pace seconds of a unit of training: the median of its
    blocks but the first, which may start loaders waited share of its ranks' CPU demand that other processes
    took; None if not logged evaluations quality values, in order order digest of the samples in the order in
    which they were taken weights digest of the model at its end threads of each rank samples_per_second at that
    pace; None if the log does not have the samples of an epoch
    """

    seconds: float
    pace: float
    waited: float | None
    evaluations: tuple[Any, ...]
    order: str | None
    weights: str | None
    threads: int | None
    samples_per_second: float | None = None

    @property
    def outcome(self) -> tuple[Any, ...]:
        """Values that are bitwise equal wherever the same job runs on the same type of machine."""
        return (self.order, self.evaluations, self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """An accelerator under load: `rates` in FLOP and bytes a second by what was measured, `facts` of its driver, and
    the error that it ended with, if any."""

    index: int
    name: str
    uuid: str | None
    rates: Mapping[str, float]
    facts: Mapping[str, str]
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Bytes a second of an all-reduce between two accelerators of a node."""

    gpus: tuple[int, int]
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The accelerators of a node, all under load."""

    gpus: tuple[Gpu, ...]
    pairs: tuple[Pair, ...]


@dataclass(slots=True, kw_only=True)
class Node:
    """One node. `versions` are those of its software and other properties that should be equal on machines of one
    `type`, which has `accelerators` accelerators; `ahead` is the offset of its clock from ours, +- `ahead_error`, in
    seconds. `trouble` lists why it was unreachable or did not train, in sentences without a subject."""

    name: str
    address: str
    type: str = "unknown"
    accelerators: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    ahead: float | None = None
    ahead_error: float = 0.0
    trained: list[Trained] = field(default_factory=list)
    load: Load | None = None
    trouble: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Training over several nodes, by name; its failure, if it failed; the outcome of the previous attempt, if that
    differs."""

    nodes: tuple[str, ...]
    trained: Trained | None
    trouble: str | None
    otherwise: tuple[Any, ...] | None = None


def accelerators_of(facts: Mapping[str, Any]) -> list[str]:
    """Names of the accelerators."""
    accelerators = facts.get("accelerators")
    return [_text(one) for one in accelerators[:LONGEST_FIELD]] if isinstance(accelerators, list) else []


def type_of(facts: Mapping[str, Any]) -> str:
    """Machine type from a node's facts: processors and accelerators."""
    named = accelerators_of(facts)
    parts = [f"{_text(facts.get('processors'))} processors of {_text(facts.get('processor'))}"]
    parts += [f"{named.count(name)} x {name}" for name in dict.fromkeys(named)]
    return ", ".join(parts)


def versions_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Versions that have to be equal on machines of one type, by their name in a sentence."""
    packages = facts.get("packages")
    named = {
        "Python": "python",
        "kernel": "kernel",
        "operating system": "operating_system",
        "driver": "driver",
        "source of train_bench": "sources",
        "processors to use": "cores",
        PACKAGES: "packages_digest",
    }
    return {
        **{name: _text(facts.get(key)) for name, key in named.items()},
        **{_text(name): _text(version) for name, version in _items(packages)},
    }


PACKAGES = "installed packages"
"""Name of the combined digest."""


def _items(packages: object) -> Sequence[tuple[Any, Any]]:
    return [*packages.items()][:LONGEST_FIELD] if isinstance(packages, Mapping) else ()


def _text(value: object) -> str:
    """A name or number from a node's facts."""
    known = isinstance(value, (str, int)) and not isinstance(value, bool)
    return plain(str(value)[:LONGEST_FIELD]) if known else "none"


RATES = {"product": 1e12, "memory": 1e12, "to_device": 1e9, "from_device": 1e9}
"""Rates of an accelerator, and the unit in which they are shown."""

MOST_GPUS = 64

LARGEST_RATE = 1e18


def load_of(numbers: object) -> Load:
    """Accelerators from a node's answer. Raises `ValueError` if it has none."""
    found = numbers if isinstance(numbers, Mapping) else {}
    rows = [row for row in _list(found.get("gpus")) if isinstance(row, Mapping)]
    between = [row for row in _list(found.get("pairs")) if isinstance(row, Mapping)]
    gpus = tuple(_gpu(index, row) for index, row in enumerate(rows))
    if not gpus:
        raise ValueError("its answer has no accelerators")
    return Load(gpus=gpus, pairs=tuple(pair for row in between if (pair := _pair(row, len(gpus)))))


def _gpu(index: int, row: Mapping[str, Any]) -> Gpu:
    rates, facts, error = row.get("rates"), row.get("facts"), row.get("error")
    known = {name: _rate(rates.get(name)) for name in RATES} if isinstance(rates, Mapping) else {}
    return Gpu(
        index=index,
        name=_text(row.get("name")),
        uuid=None if row.get("uuid") is None else _text(row.get("uuid")),
        rates={name: rate for name, rate in known.items() if rate is not None},
        facts={_text(name): _text(value) for name, value in _items(facts)},
        error=None if error is None else _text(error),
    )


def _pair(row: Mapping[str, Any], count: int) -> Pair | None:
    numbers, rate = _list(row.get("gpus")), _rate(row.get("rate"))
    if rate is None or len(numbers) != 2 or not all(type(one) is int and 0 <= one < count for one in numbers):
        return None
    return Pair(gpus=(numbers[0], numbers[1]), rate=rate)


def _rate(value: object) -> float | None:
    rate = finite_number(value, below=LARGEST_RATE)
    return rate if rate is not None and rate > 0 else None


def _list(value: object) -> list[Any]:
    return value[:MOST_GPUS] if isinstance(value, list) else []


def read_training(folder: Path, rules: BenchmarkRules) -> Trained:
    """Read the first run of the campaign in `folder`. Raises `LogError` or `RequestError` if it was not completed or
    has no pace."""
    path = folder / "result_0.txt"
    record, log = read_record(path, rules)
    if record.status == DIED or record.minutes is None:
        how = "; ".join(record.deaths) or "its log has no end"
        raise LogError(f"its training died ({how})")
    measured = log_pace.measure(record, log, rules)
    replicas = _value(log, "replicas")
    if replicas.get("equal") is not True:
        raise LogError("its ranks held different models after the run")
    units = sorted(measured.units[1:] or measured.units)
    pace = units[(len(units) - 1) // 2]
    if not pace > 0:
        raise LogError(f"its log has an invalid pace of {pace:g} s for a unit of training")
    return Trained(
        seconds=record.minutes * 60,
        pace=pace,
        waited=record.processor_lost,
        evaluations=tuple(hashable(one.value) for one in record.evaluations),
        order=_digest(_value(log, "order_fingerprint")),
        weights=_digest(replicas),
        threads=_threads(folder),
        samples_per_second=_samples(log, rules) / pace or None,
    )


def _samples(log: Log, rules: BenchmarkRules) -> float:
    """Samples of a unit of training; 0 if they are unknown."""
    if rules.unit is Unit.SAMPLE:
        return 1.0
    first = log.events.first_of_each()
    found = first.get("samples_per_epoch") or first.get("train_samples")
    return (finite_number(found.value) if found and rules.unit is Unit.EPOCH else None) or 0.0


def _value(log: Log, key: str) -> Mapping[str, Any]:
    value = next((event.value for event in log.events if event.key == key), None)
    return value if isinstance(value, Mapping) else {}


def hashable(value: Any) -> Any:
    """JSON value as a hashable one that equals itself: objects as pairs in order, lists as tuples, non-finite numbers
    by name."""
    if isinstance(value, Mapping):
        return tuple((name, hashable(value[name])) for name in sorted(value))
    if isinstance(value, list):
        return tuple(map(hashable, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _digest(value: Mapping[str, Any]) -> str | None:
    digest = value.get("digest")
    return digest[:LONGEST_FIELD] if isinstance(digest, str) else None


def _threads(folder: Path) -> int | None:
    try:
        found = files.read_json(folder / "system.json")
    except LogError:
        return None
    threads = found.get("threads_per_rank") if isinstance(found, dict) else None
    return threads if isinstance(threads, int) else None
