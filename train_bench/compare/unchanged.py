"""Deterministic gate, which needs no statistics: do runs of equal seeds count the same and find bit-equal qualities?

One pair is enough. Counts are those of the log: batch size, training samples, and the positions of evaluations. A side
of which no quality moves between two evaluations of a run trains nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from train_bench.compare.comparison import refuse_other_tasks
from train_bench.compare.gate import CANNOT_TELL
from train_bench.judge.entry import Judgement
from train_bench.logs.record import RunRecord

CHANGED, UNCHANGED = "changed", "unchanged"

EXIT_CODES = {UNCHANGED: 0, CHANGED: 1, CANNOT_TELL: 3}
"""Exit codes of `compare --fail-if-changed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """Deterministic gate of `b` against `a`: its verdict, the number of `pairs` of runs with equal seeds, of their
    `evaluations`, and the first difference, if there is one (`where`)."""

    a: str
    b: str
    verdict: str
    pairs: int
    evaluations: int
    where: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self)


def against_one(name_a: str, a: Judgement, name_b: str, b: Judgement) -> Unchanged:
    """Gate between two entries. Raises `RequestError` if their tasks differ."""
    refuse_other_tasks(name_a, a.score, name_b, b.score)
    partner = {record.seed: record for record in a.records if record.seed is not None}
    pairs = [(partner[record.seed], record) for record in b.records if record.seed in partner]
    moving = [_moves(side) for side in (a, b)]
    where = next((text for one, other in pairs for text in _differences(one, other)), None)
    if False in moving:
        where = f"no quality of {'AB'[moving.index(False)]} moves from one evaluation to the next; nothing is trained"
    evaluations = sum(len(record.evaluations) for _, record in pairs)
    verdict = CHANGED if where is not None else UNCHANGED if evaluations and moving[1] else CANNOT_TELL
    return Unchanged(
        a=name_a, b=name_b, verdict=verdict, pairs=len(pairs), evaluations=evaluations, where=where
    )


def _moves(side: Judgement) -> bool | None:
    """True if a quality differs from the one before it; None if no run has two."""
    values = [[_quality(one.value) for one in record.evaluations] for record in side.records]
    found = [one != other for of_run in values for one, other in itertools.pairwise(of_run)]
    return any(found) if found else None


def _differences(a: RunRecord, b: RunRecord) -> Iterator[str]:
    """What differs between two runs of one seed; A is named first."""
    for name in ("global_batch_size", "train_samples", "status"):
        one, other = getattr(a, name), getattr(b, name)
        if one != other:
            yield f"{name} is {one} and {other} (seed {a.seed})"
    for number, (one, other) in enumerate(zip(a.evaluations, b.evaluations, strict=False), start=1):
        if one.position != other.position:
            yield f"evaluation {number} is at {_place(one.position)} and {_place(other.position)} (seed {a.seed})"
        if _quality(one.value) != _quality(other.value):
            yield f"evaluation {number} found {_quality(one.value)} and {_quality(other.value)} (seed {a.seed})"
    if len(a.evaluations) != len(b.evaluations):
        yield f"there are {len(a.evaluations)} and {len(b.evaluations)} evaluations (seed {a.seed})"


def _place(position: float | None) -> str:
    return "no place" if position is None else f"{position:g}"


def _quality(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number!r}" for name, number in value.items())
    return repr(value)
