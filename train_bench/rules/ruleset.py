"""A round's rules as one frozen object: the rule files, and the table of what they leave unsaid.

The table `rounds/<round>.yaml` holds, per logged benchmark name, the run count, how many runs are dropped
at each end, the unit of progress, the target and the evaluation schedule; plan, judge and score use the
same values. The rule files of official rounds are read from the installed mlperf-logging package,
those of our rounds from a folder beside the table.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from train_bench.errors import RequestError, UnknownName
from train_bench.progress import EvalSchedule, Unit
from train_bench.quality import Target, Threshold
from train_bench.rules import rulefile
from train_bench.rules.rulefile import RuleFile, RuleFileError

ROUNDS = Path(__file__).parent / "rounds"

ROUND_FIELDS = {
    "rule_files",
    "start",
    "fixed_seeds_allowed",
    "uncleared_cache_allowed",
    "benchmarks",
}
BENCHMARK_FIELDS = {"reference", "runs", "drop", "unit", "target", "schedule"}


class _TableLoader(yaml.SafeLoader):
    """A key written twice is an error."""


_TableLoader.add_constructor("tag:yaml.org,2002:map", rulefile.unique_mapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRule:
    """Which evaluation schedules are allowed: the first evaluation at one of `first`, then every
    `period`, in the benchmark's unit."""

    first: tuple[float, ...]
    period: float

    def default(self) -> EvalSchedule:
        """The schedule of a request that names none; it never ends."""
        return EvalSchedule(first=self.first[0], period=self.period, until=float("inf"))

    def refuse(self, first: float | None, period: float | None) -> str | None:
        """Why a schedule is not allowed, as a sentence; None if it is."""
        if first not in self.first:
            allowed = ", ".join(f"{value:g}" for value in self.first)
            return f"evaluation.first is {first}; allowed: {allowed}."
        if period != self.period:
            return f"evaluation.period is {period}; allowed: only {self.period:g}."
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRules:
    """What a round says of one benchmark. `files` gives the rule files by the name that other files
    enqueue them under; `start` is the name of the first."""

    name: str
    ruleset: str
    reference: str
    runs: int
    drop: int
    unit: Unit
    target: Target
    schedule: ScheduleRule
    fixed_seeds_allowed: bool
    uncleared_cache_allowed: bool
    start: str
    files: Callable[[str], RuleFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset:
    """A round. The digest ties a verdict to the law that gave it: table, rule files and package."""

    name: str
    digest: str
    benchmarks: Mapping[str, BenchmarkRules]

    def benchmark(self, name: str) -> BenchmarkRules:
        """The rules of the benchmark that logs as `name`."""
        if name not in self.benchmarks:
            raise UnknownName(what=f"benchmark of {self.name}", name=name, known=self.benchmarks)
        return self.benchmarks[name]


def names() -> tuple[str, ...]:
    """All rounds, ours and the official ones."""
    return tuple(sorted(path.stem for path in ROUNDS.glob("*.yaml")))


@cache
def load(name: str) -> Ruleset:
    """A round by name, for example `mini-1.0`."""
    path = ROUNDS / f"{name}.yaml"
    if name not in names():
        raise UnknownName(what="ruleset", name=name, known=names())
    table = yaml.load(path.read_text(encoding="utf-8"), Loader=_TableLoader)
    _refuse_strange(table, ROUND_FIELDS, path)
    folder = _folder(table["rule_files"])
    benchmarks = {}
    for benchmark, row in table["benchmarks"].items():
        _refuse_strange(row, BENCHMARK_FIELDS, path)
        benchmarks[benchmark] = _benchmark(name, benchmark, table, row, folder)
    return Ruleset(name=name, digest=_digest(path, folder), benchmarks=benchmarks)


def _benchmark(
    ruleset: str, name: str, table: Mapping[str, Any], row: Mapping[str, Any], folder: Path
) -> BenchmarkRules:
    schedule = row["schedule"]
    return BenchmarkRules(
        name=name,
        ruleset=ruleset,
        reference=row["reference"],
        runs=row["runs"],
        drop=row["drop"],
        unit=Unit(row["unit"]),
        target=Target(thresholds=tuple(Threshold(**threshold) for threshold in row["target"])),
        schedule=ScheduleRule(first=tuple(schedule["first"]), period=schedule["period"]),
        fixed_seeds_allowed=table["fixed_seeds_allowed"],
        uncleared_cache_allowed=table["uncleared_cache_allowed"],
        start=table["start"].format(reference=row["reference"]),
        files=lambda enqueued: _rule_file(folder, Path(enqueued).name),
    )


@cache
def _rule_file(folder: Path, name: str) -> RuleFile:
    """One of the round's own files. A log can put any name into what its rules enqueue, so a name that
    the folder does not list is not even looked up."""
    if name not in {path.name for path in folder.glob("*.yaml")}:
        raise FileNotFoundError(name)
    return rulefile.read(folder / name)


def _folder(rule_files: str) -> Path:
    """`mlperf-logging/FOLDER` is a folder of the installed package's rules, anything else one of ours."""
    owner, _, folder = rule_files.rpartition("/")
    return package_folder("compliance_checker") / folder if owner else ROUNDS / folder


def package_folder(name: str) -> Path:
    """A folder of the installed mlperf-logging package, found without importing it."""
    spec = importlib.util.find_spec("mlperf_logging")
    if spec is None or not spec.submodule_search_locations:
        raise RequestError("The package mlperf-logging is not installed; pip install mlperf-logging.")
    return Path(spec.submodule_search_locations[0]) / name


def _digest(table: Path, folder: Path) -> str:
    digest = hashlib.sha256(importlib.metadata.version("mlperf-logging").encode())
    for path in (table, *sorted(folder.glob("*.yaml"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _refuse_strange(table: Mapping[str, Any], allowed: set[str], path: Path) -> None:
    if set(table) != allowed:
        raise RuleFileError(f"{path}: fields {sorted(set(table) ^ allowed)} are unknown or missing")
