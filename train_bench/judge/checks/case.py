"""Inputs of the checks: one log, or all of an entry."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from train_bench.judge.checks.planned import Planned
from train_bench.judge.locate import Location
from train_bench.judge.rcp import Point
from train_bench.logs.log import Log
from train_bench.logs.record import RunRecord
from train_bench.rules.checks import Failure
from train_bench.rules.ruleset import BenchmarkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """Facts on a run that its log states: `ranks`, `hosts`, `devices` and `precision` of a user's own program, and of
    one machine the processor time on the clock that its ranks `ran` and `waited` for and that `others` ran, and the
    number of its `cores`, and the digests of its `data`; None if it does not. `loaded` is code of its ranks that no
    digest covers, by kind."""

    ranks: int | None = None
    hosts: int | None = None
    devices: str | None = None
    precision: str | None = None
    ran: float | None = None
    waited: float | None = None
    others: float | None = None
    cores: int | None = None
    data: str | None = None
    loaded: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCase:
    """One log, the rules that apply to it, and the plan of its run.

    `failures` are the broken rules of the rule files. `world_size` is that of the plan, None for a log without one;
    `of_command` means that a program of the user's own wrote it. `as_logged` are record and log as they are in the
    file, if `record` and `log` are held to the closed division.
    """

    record: RunRecord
    log: Log
    rules: BenchmarkRules
    failures: Sequence[Failure]
    as_logged: tuple[RunRecord, Log]
    planned: Planned | None = None
    world_size: int | None = None
    of_command: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryCase:
    """The logs of an entry together: their records in order, the rules, the plan, and of each log its keys among
    those that only some programs log, and the facts on its program (`programs`). `closed` holds them to the closed
    division."""

    location: Location
    records: Sequence[RunRecord]
    rules: BenchmarkRules
    planned: Planned | None
    world_size: int | None
    closed: bool
    points: Sequence[Point]
    points_digest: str | None
    logged_keys: Collection[frozenset[str]]
    programs: Sequence[ProgramFacts] = ()

    def program_of(self, record: RunRecord) -> ProgramFacts | None:
        """Facts on the program of one of the records; None if they are unknown."""
        pairs = zip(self.records, self.programs, strict=False)
        return next((facts for one, facts in pairs if one is record), None)

    @property
    def folder(self) -> Path:
        """Folder of the logs."""
        return self.location.folder
