"""Peer comparison of a published entry: minutes of entries on the same hardware, and whether it is an outlier.

Peers are entries of the closed division with the same benchmark, the same accelerator and the same number of them. They
are of the same round; if they are fewer than `LEAST_PEERS`, entries of earlier rounds join them in which the benchmark
had the same target. Later rounds do not: software becomes faster. A slow entry is a question for the reviewer, not a
verdict.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from train_bench.core.digits import distinct, significant
from train_bench.errors import RequestError
from train_bench.judge.checks.submission import accelerators_of
from train_bench.judge.finding import Finding, file_finding
from train_bench.judge.locate import Location
from train_bench.judge.published.published_entries import Entry, minutes_of, round_of_ruleset
from train_bench.logs.record import RunRecord
from train_bench.rules import ruleset
from train_bench.rules.allowed import CLOSED

LEAST_PEERS = 4
MUCH_SLOWER = 1.3
MUCH_FASTER = 0.5
"""Suspicious share of the peers' median; the fastest of 930 published entries with as many takes 0.67 times it."""

BEYOND_THE_BEST = 10.0
"""Samples per second of an accelerator over those of the best published entry of the benchmark that are asked for."""

OUTLIER = "peer_outlier"

Name = tuple[str, str, str, str]

NO_MODEL = frozenset(
    [
        *("nvidia", "amd", "intel", "habana", "graphcore", "google", "r", "tm"),
        *("ai", "accelerator", "tensor", "core", "gpu", "ipu", "instinct", "geforce", "radeon"),
        *("hopper", "blackwell", "ultra", "hbm2e", "hbm3", "hbm3e", "cts", "hl", "205"),
    ]
)
"""Words of an accelerator's name without information; an HL-205 is the first Gaudi."""

IN_SEVERAL_SIZES = frozenset({"v100", "a100", "h100"})
"""Models whose name includes the memory; others have one size, and some submitters write it down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Minutes of an entry and of its peers, without the RCP scaling factor.

    rounds     of the peers
    ratio      its minutes over their median
    quartiles  of the peers; None for a single one
    faster     number of faster peers
    """

    minutes: float
    accelerators: int
    accelerator: str
    round: str
    rounds: tuple[str, ...]
    count: int
    median: float
    quartiles: tuple[float, float] | None
    ratio: float
    faster: int

    @property
    def question(self) -> str | None:
        """Question for review, if the entry is much slower or faster than enough peers."""
        if self.count < LEAST_PEERS or MUCH_FASTER <= self.ratio <= MUCH_SLOWER:
            return None
        return f"{self}. Why is this one {'slower' if self.ratio > 1 else 'faster'}?"

    def __str__(self) -> str:
        minutes, median = significant(self.minutes, self.median)
        ratio, *_ = distinct(self.ratio, 0.0, 1.0, MUCH_SLOWER)
        taken = f"{median} min"
        if self.quartiles is not None:
            taken = "the median {} (middle half {:.4g} to {:.4g})".format(taken, *self.quartiles)
        whose = "of its round" if self.rounds == (self.round,) else f"of {' and '.join(self.rounds)}"
        entries = "entry" if self.count == 1 else "entries"
        return (
            f"{minutes} min, {ratio} times {taken} of {self.count} published {entries} {whose} on "
            f"{self.accelerators} x {self.accelerator}; {self.faster} of them took less"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON, with the sentence."""
        return asdict(self) | {"message": str(self), "outlier": self.question is not None}


def find_peers(entry: Entry, table: Iterable[Entry]) -> Peers | None:
    """Peers of an entry in a table that may contain it; None without peers, or if the entry's key is unknown."""
    return _compared(entry, _by_kind(table))


def find_peers_of_each(entries: Sequence[Entry | None], table: Iterable[Entry]) -> list[Peers | None]:
    """Peers of each entry in a table and among each other; they replace entries of the table that have the same
    name."""
    if not any(entries):
        return [None] * len(entries)
    by_name = {_name(entry): entry for entry in (*table, *filter(None, entries))}
    by_kind = _by_kind(by_name.values())
    return [None if entry is None else _compared(entry, by_kind) for entry in entries]


def entry_of(
    location: Location, records: Sequence[RunRecord], benchmark: str, division: str | None
) -> Entry | None:
    """Fields of an entry for the comparison with peers; None for anything but an entry of an official round."""
    if location.submitter is None or location.system is None:
        return None
    rules = ruleset.load(location.ruleset).benchmark(benchmark)
    if not rules.ruleset.startswith("training-"):
        return None
    accelerators, accelerator = accelerators_of(location)
    return Entry(
        round=round_of_ruleset(rules.ruleset),
        submitter=location.submitter,
        system=location.system,
        benchmark=rules.name,
        division=division,
        accelerators=accelerators,
        accelerator=accelerator,
        minutes=minutes_of(records, rules),
        runs=len(records),
    )


def finding(folder: Path, peers: Peers) -> Finding | None:
    """The question, as a finding for review."""
    if peers.question is None:
        return None
    value, message = round(peers.ratio, 4), f"It took {peers.question}"
    return file_finding(folder, OUTLIER, message, value=value)


def implausible_speed(
    folder: Path, entry: Entry, samples_per_second: float | None, table: Iterable[Entry]
) -> Finding | None:
    """Question about an entry whose accelerators are far faster than those of any published entry of its benchmark."""
    if not samples_per_second or not entry.accelerators:
        return None
    speeds = [
        other.samples_to_target / (other.minutes * 60) / other.accelerators
        for other in table
        if other.benchmark == entry.benchmark
        and other.samples_to_target
        and other.minutes
        and other.accelerators
        and _name(other) != _name(entry)
    ]
    own, best = samples_per_second / entry.accelerators, max(speeds, default=0.0)
    if not best or own <= BEYOND_THE_BEST * best:
        return None
    speed, fastest = significant(own, best)
    ratio, _ = significant(own / best, BEYOND_THE_BEST, digits=3)
    message = (
        f"An accelerator takes {speed} samples/s, {ratio} times as many as that of the fastest published "
        f"entry of {entry.benchmark} ({fastest}). Are the times right?"
    )
    return file_finding(folder, "speed", message, value=round(own, 4))


@cache
def model_of(name: str) -> str:
    """Canonical accelerator name: without makers, common words, power limits and generations of the socket."""
    text = re.sub(r"(\d)\s+gb\b", r"\1gb", re.sub(r"[^a-z0-9]+", " ", name.casefold()))
    words = []
    for word in re.sub(r"\bgaudi(\d)", r"gaudi \1", text).split():
        word = re.sub(r"^sxm\d$", "sxm", word)
        if not re.fullmatch(r"\d+w", word):
            words.append(word)
    model = [word for word in words if word not in NO_MODEL] or words
    if not IN_SEVERAL_SIZES.intersection(model):
        model = [word for word in model if not re.fullmatch(r"\d+gb", word)]
    return " ".join(sorted(set(model)))


Kinds = Mapping[tuple[str, str, int], Sequence[Entry]]


def _by_kind(table: Iterable[Entry]) -> Kinds:
    kinds: dict[tuple[str, str, int], list[Entry]] = {}
    for entry in table:
        kind = _kind(entry)
        if kind is not None:
            kinds.setdefault(kind, []).append(entry)
    return kinds


def _kind(entry: Entry) -> tuple[str, str, int] | None:
    """Key that peers share; None for an entry without peers."""
    if entry.division != CLOSED or not entry.accelerators or not entry.accelerator or not entry.minutes:
        return None
    return entry.benchmark, model_of(entry.accelerator), entry.accelerators


def _compared(entry: Entry, kinds: Kinds) -> Peers | None:
    kind = _kind(entry)
    if kind is None or entry.minutes is None:
        return None
    others = [other for other in kinds.get(kind, ()) if _name(other) != _name(entry)]
    peers = [other for other in others if other.round == entry.round]
    if len(peers) < LEAST_PEERS:
        peers += [other for other in others if _earlier(other.round, entry.round, entry.benchmark)]
    minutes = [other.minutes for other in peers if other.minutes is not None]
    if not minutes:
        return None
    median = statistics.median(minutes)
    low, _, high = statistics.quantiles(minutes, method="inclusive") if len(minutes) > 1 else (0, 0, 0)
    return Peers(
        minutes=entry.minutes,
        accelerators=kind[2],
        accelerator=str(entry.accelerator),
        round=entry.round,
        rounds=tuple(sorted({other.round for other in peers}, key=_number)),
        count=len(minutes),
        median=median,
        quartiles=(low, high) if len(minutes) > 1 else None,
        ratio=entry.minutes / median,
        faster=sum(other < entry.minutes for other in minutes),
    )


def _name(entry: Entry) -> Name:
    return entry.round, entry.submitter, entry.system, entry.benchmark


@cache
def _earlier(before: str, after: str, benchmark: str) -> bool:
    """True if a round came before another, and its benchmark was the same task."""
    if _number(before) >= _number(after):
        return False
    target = _target(after, benchmark)
    return target is not None and _target(before, benchmark) == target


def _target(round_name: str, benchmark: str) -> str | None:
    try:
        return str(ruleset.load(f"training-{round_name[1:]}.0").benchmark(benchmark).target)
    except RequestError:
        return None


def _number(round_name: str) -> tuple[int, ...]:
    return tuple(map(int, round_name[1:].split(".")))
