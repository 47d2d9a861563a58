"""Errata of the official rule files and checkers: `errata.yaml` as objects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from train_bench.rules.rulefile import RuleFileError, UniqueKeyLoader

FILE = Path(__file__).parent / "errata.yaml"

FIELDS = {
    *("id", "why", "rounds", "benchmarks", "waived", "if_logged", "written_twice", "repeated"),
    *("seeds", "mixed", "late_points", "rcp_crashes", "fixed", "section"),
    *("near", "rounded"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Erratum:
    """One correction; `errata.yaml` documents its fields at the top."""

    id: str
    why: str
    waived: tuple[str, ...]
    if_logged: tuple[str, ...]
    written_twice: tuple[str, ...]
    repeated: tuple[str, ...]
    seeds_for_review: bool
    mixed_batch_sizes: bool
    late_points: tuple[int, ...]
    rcp_crashes: bool
    fixed: tuple[tuple[str, tuple[str, ...]], ...]
    section: str
    near: float = 0.0
    rounded: tuple[tuple[str, int], ...] = ()


def of(number: str, benchmark: str | None = None) -> tuple[Erratum, ...]:
    """The errata of an official round, a training round such as `1.1.0` or another by its full name: for one benchmark,
    or for any."""
    return tuple(
        _erratum(row)
        for row in _rows()
        if number in row.get("rounds", (number,))
        and (benchmark is None or benchmark in row.get("benchmarks", (benchmark,)))
    )


@cache
def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = yaml.load(FILE.read_text(encoding="utf-8"), Loader=UniqueKeyLoader)
    for row in rows:
        strange = set(row) - FIELDS
        if strange or "id" not in row or "why" not in row:
            raise RuleFileError(
                f"{FILE}: an erratum has unknown fields {sorted(strange)}, or no id or reason"
            )
    return rows


def _erratum(row: dict[str, Any]) -> Erratum:
    return Erratum(
        id=row["id"],
        why=" ".join(row["why"].split()),
        waived=tuple(row.get("waived", ())),
        if_logged=tuple(row.get("if_logged", ())),
        written_twice=tuple(row.get("written_twice", ())),
        repeated=tuple(row.get("repeated", ())),
        seeds_for_review=row.get("seeds") == "review",
        mixed_batch_sizes=row.get("mixed") == "allowed",
        late_points=tuple(row.get("late_points", ())),
        rcp_crashes=row.get("rcp_crashes", False),
        fixed=tuple((key, tuple(map(str, allowed))) for key, allowed in row.get("fixed", {}).items()),
        section=row.get("section", "Hyperparameters"),
        near=row.get("near", 0.0),
        rounded=tuple(row.get("rounded", {}).items()),
    )
