"""What was seen of a fleet: of each node its machine, its clock and its trainings, and of nodes that trained together.

A training is read from its log, as any result is; what a node says of itself is somebody's data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.errors import LogError
from train_bench.forecast import log_pace
from train_bench.logs.log import Log
from train_bench.logs.record import DIED, read_record
from train_bench.rules.ruleset import BenchmarkRules

LONGEST = 200
"""Characters of what a node says of itself that are kept of each value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One training that came to its end.

    seconds      from the start of its clock to its stop
    pace         seconds of a unit of training: the median of its blocks but the first, which may start loaders
    waited       share of the processor time that its ranks wanted and did not get; None where that is not known
    evaluations  what they found, in their order
    order        digest of the samples in the order in which they were taken
    weights      digest of the model at its end
    threads      of each rank
    """

    seconds: float
    pace: float
    waited: float | None
    evaluations: tuple[Any, ...]
    order: str | None
    weights: str | None
    threads: int | None

    @property
    def outcome(self) -> tuple[Any, ...]:
        """What is the same, bit by bit, wherever the same job runs on the same type of machine."""
        return (self.order, self.evaluations, self.weights)


@dataclass(slots=True, kw_only=True)
class Node:
    """One node. `versions` are those of its software and what else should be the same on machines of one `type`, which
    has so many `accelerators`; `ahead` is how far its clock is ahead of ours, give or take `ahead_error`, in seconds.
    `trouble` says why it could not be reached or did not train, in sentences without a subject."""

    name: str
    address: str
    type: str = "unknown"
    accelerators: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    ahead: float | None = None
    ahead_error: float = 0.0
    trained: list[Trained] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """A training over several nodes, by name; how it failed, if it did; what the same ended in before, where that was
    something else."""

    nodes: tuple[str, ...]
    trained: Trained | None
    trouble: str | None
    otherwise: tuple[Any, ...] | None = None


def accelerators_of(facts: Mapping[str, Any]) -> list[str]:
    """Their names."""
    accelerators = facts.get("accelerators")
    return [_text(one) for one in accelerators[:LONGEST]] if isinstance(accelerators, list) else []


def type_of(facts: Mapping[str, Any]) -> str:
    """The type of a machine by what it says of itself: its processors and its accelerators."""
    named = accelerators_of(facts)
    parts = [f"{_text(facts.get('processors'))} processors of {_text(facts.get('processor'))}"]
    parts += [f"{named.count(name)} x {name}" for name in dict.fromkeys(named)]
    return ", ".join(parts)


def versions_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """What has to be the same on machines of one type, by its name in a sentence."""
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
"""The digest of them all."""


def _items(packages: object) -> Sequence[tuple[Any, Any]]:
    return [*packages.items()][:LONGEST] if isinstance(packages, Mapping) else ()


def _text(value: object) -> str:
    """A name or a number that a node tells."""
    known = isinstance(value, (str, int)) and not isinstance(value, bool)
    return plain(str(value)[:LONGEST]) if known else "none"


def read_training(folder: Path, rules: BenchmarkRules) -> Trained:
    """The first run of the campaign in `folder`. Raises `LogError` or `RequestError` where it did not come to its end,
    or tells no pace."""
    path = folder / "result_0.txt"
    record, log = read_record(path, rules)
    if record.status == DIED or record.minutes is None:
        how = "; ".join(record.deaths) or "its log has no end"
        raise LogError(f"its training died ({how})")
    measured = log_pace.measure(record, log, rules)
    replicas = _value(log, "replicas")
    if replicas.get("equal") is not True:
        raise LogError("its ranks held different models when the run was over")
    units = sorted(measured.units[1:] or measured.units)
    pace = units[(len(units) - 1) // 2]
    if not pace > 0:
        raise LogError(f"a unit of its training took {pace:g} s by its log")
    return Trained(
        seconds=record.minutes * 60,
        pace=pace,
        waited=record.processor_lost,
        evaluations=tuple(hashable(one.value) for one in record.evaluations),
        order=_digest(_value(log, "order_fingerprint")),
        weights=_digest(replicas),
        threads=_threads(folder),
    )


def _value(log: Log, key: str) -> Mapping[str, Any]:
    value = next((event.value for event in log.events if event.key == key), None)
    return value if isinstance(value, Mapping) else {}


def hashable(value: Any) -> Any:
    """What JSON may hold, so that it can be counted and equals itself: objects as pairs in their order, lists as
    tuples, what is no finite number as its name."""
    if isinstance(value, Mapping):
        return tuple((name, hashable(value[name])) for name in sorted(value))
    if isinstance(value, list):
        return tuple(map(hashable, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _digest(value: Mapping[str, Any]) -> str | None:
    digest = value.get("digest")
    return digest[:LONGEST] if isinstance(digest, str) else None


def _threads(folder: Path) -> int | None:
    try:
        found = files.read_json(folder / "system.json")
    except LogError:
        return None
    threads = found.get("threads_per_rank") if isinstance(found, dict) else None
    return threads if isinstance(threads, int) else None
