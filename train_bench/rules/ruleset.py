"""A round's rules as one frozen object: the rule files, and the table of what they leave unsaid.

A table `rounds/<family>.yaml` lists its rounds and, per logged benchmark name, the run count, how many runs
are dropped at each end, the unit of progress, the target and the evaluation schedule; plan, judge and
score use the same values. The rule files of official rounds are read from the installed mlperf-logging
package, those of our rounds from a folder beside the table.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from train_bench.errors import RequestError, UnknownName
from train_bench.progress import Unit
from train_bench.quality import Target, Threshold
from train_bench.rules import errata, rulefile, schedule
from train_bench.rules.errata import Erratum
from train_bench.rules.rulefile import RuleFile, RuleFileError
from train_bench.rules.schedule import ScheduleRule

ROUNDS = Path(__file__).parent / "rounds"

FAMILY_FIELDS = {
    *("rounds", "rule_files", "start", "strict", "fixed_seeds_allowed", "uncleared_cache_allowed"),
    "benchmarks",
}
ROUND_FIELDS = {"init_minutes", "factor"}
BENCHMARK_FIELDS = {"name", "runs", "unit", "target"}
OPTIONAL_FIELDS = {"rounds", "reference", "drop", "counted", "schedule", "rcp_allowance"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRules:
    """What a round says of one benchmark.

    drop          runs that are left out at each end; as many may fail
    counted       what the log counts convergence in: `epoch_num`, `samples_count` or `step_num` of the
                  evaluation's metadata, or `train_samples`, which is taken where its line stands after the
                  last evaluation
    schedule      the evaluation schedule at a global batch size; None where the rules give none
    rcp_allowance how much lower than the bound of the RCP test a mean may be, in the benchmark's unit
    init_minutes  limit of the initialisation by division
    factor_applied whether a score is scaled by the RCP factor
    strict        a run that breaks a rule invalidates the result instead of counting as the slowest, and
                  checks that official rounds do not have are rules
    files         the rule files by the name that other files enqueue them under; `start` is the first
    digest        sha256 of all of this: the benchmark's row of the table, the round, the rule files, and for an
                  official round the errata and the version of mlperf-logging
    """

    name: str
    ruleset: str
    reference: str
    runs: int
    drop: int
    unit: Unit
    counted: str
    target: Target
    schedule: Callable[[int], ScheduleRule] | None
    rcp_allowance: float
    init_minutes: Mapping[str, float]
    factor_applied: bool
    strict: bool
    fixed_seeds_allowed: bool
    uncleared_cache_allowed: bool
    start: str
    files: Callable[[str], RuleFile]
    errata: tuple[Erratum, ...]
    digest: str

    def schedule_at(self, batch_size: int | None) -> ScheduleRule | None:
        """The evaluation schedule at a global batch size; None where the rules give none, or where it would
        depend on a batch size that is not known."""
        if self.schedule is None or batch_size is None or batch_size < 1:
            return None
        return self.schedule(batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset:
    """A round."""

    name: str
    benchmarks: Mapping[str, BenchmarkRules]

    def benchmark(self, name: str) -> BenchmarkRules:
        """The rules of the benchmark that logs as `name`."""
        if name not in self.benchmarks:
            raise UnknownName(what=f"benchmark of {self.name}", name=name, known=self.benchmarks)
        return self.benchmarks[name]


def names() -> tuple[str, ...]:
    """All rounds, ours and the official ones, for example `mini-1.0` and `training-1.1.0`."""
    return tuple(
        f"{path.stem}-{number}" for path in sorted(ROUNDS.glob("*.yaml")) for number in _table(path)["rounds"]
    )


def full_name(name: str) -> str:
    """`1.1.0` is short for `training-1.1.0`."""
    known = names()
    if name not in known and f"training-{name}" in known:
        return f"training-{name}"
    if name not in known:
        raise UnknownName(what="ruleset", name=name, known=known)
    return name


@cache
def load(name: str) -> Ruleset:
    """A round by name."""
    if name not in names():
        raise UnknownName(what="ruleset", name=name, known=names())
    family, _, number = name.partition("-")
    path = ROUNDS / f"{family}.yaml"
    table = _table(path)
    folder = _folder(table["rule_files"].format(round=number))
    rows = [row for row in table["benchmarks"] if _holds(row, number, list(table["rounds"]))]
    benchmarks = {row["name"]: _benchmark(name, number, table, row, folder) for row in rows}
    if len(benchmarks) != len(rows):
        raise RuleFileError(f"{path}: a benchmark of {name} has two rows")
    return Ruleset(name=name, benchmarks=benchmarks)


@cache
def _table(path: Path) -> dict[str, Any]:
    table: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=rulefile.UniqueKeyLoader)
    _refuse_strange(table, FAMILY_FIELDS, path)
    for row in table["rounds"].values():
        _refuse_strange(row, ROUND_FIELDS, path)
    for row in table["benchmarks"]:
        _refuse_strange(
            {name: row[name] for name in row if name not in OPTIONAL_FIELDS}, BENCHMARK_FIELDS, path
        )
    return table


def _holds(row: Mapping[str, Any], number: str, numbers: list[str]) -> bool:
    """Whether a row of the table belongs to a round; `rounds` names the first and the last."""
    first, last = row.get("rounds", (numbers[0], numbers[-1]))
    return numbers.index(first) <= numbers.index(number) <= numbers.index(last)


def _benchmark(
    ruleset: str, number: str, table: Mapping[str, Any], row: Mapping[str, Any], folder: Path
) -> BenchmarkRules:
    reference = row.get("reference", row["name"])
    official = folder.parent != ROUNDS
    of_the_files = errata.of(number) if official else ()
    return BenchmarkRules(
        name=row["name"],
        ruleset=ruleset,
        reference=reference,
        runs=row["runs"],
        drop=row.get("drop", 1),
        unit=Unit(row["unit"]),
        counted=row.get("counted", "epoch_num"),
        target=Target(thresholds=tuple(Threshold(**threshold) for threshold in row["target"])),
        schedule=schedule.named(row["schedule"]) if "schedule" in row else None,
        rcp_allowance=row.get("rcp_allowance", 0),
        init_minutes=table["rounds"][number]["init_minutes"],
        factor_applied=table["rounds"][number]["factor"] == "applied",
        strict=table["strict"],
        fixed_seeds_allowed=table["fixed_seeds_allowed"],
        uncleared_cache_allowed=table["uncleared_cache_allowed"],
        start=_start(table, row),
        files=lambda enqueued: _rule_file(folder, Path(enqueued).name, of_the_files),
        errata=errata.of(number, row["name"]) if official else (),
        digest=_digest(ruleset, number, table, row, folder, official=official),
    )


@cache
def _rule_file(folder: Path, name: str, corrections: tuple[Erratum, ...]) -> RuleFile:
    """One of the round's own files, whatever folder it was enqueued from: the open rules of 1.1.0 name the
    files of 1.0.0, and the closed ResNet of 4.0.0 those of 3.1.0, which are the same (a test says so). A log
    can put any name into what its rules enqueue, so a name that the folder does not list is not even
    looked up."""
    if name not in {path.name for path in folder.glob("*.yaml")}:
        raise FileNotFoundError(name)
    return rulefile.read(
        folder / name,
        written_twice=[key for erratum in corrections for key in erratum.written_twice],
        repeated=[key for erratum in corrections for key in erratum.repeated],
    )


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


def _digest(
    ruleset: str,
    number: str,
    table: Mapping[str, Any],
    row: Mapping[str, Any],
    folder: Path,
    *,
    official: bool,
) -> str:
    """Ties a plan and a verdict to the rules that they were made by. The rows of other benchmarks, and the files that
    theirs start from, are none of them."""
    starts = {_start(table, other) for other in table["benchmarks"]} - {_start(table, row)}
    general = {key: table[key] for key in FAMILY_FIELDS - {"rounds", "benchmarks"}}
    digest = hashlib.sha256(
        json.dumps([ruleset, table["rounds"][number], general, row], sort_keys=True).encode()
    )
    if official:
        digest.update(importlib.metadata.version("mlperf-logging").encode())
    files = [path for path in sorted(folder.glob("*.yaml")) if path.name not in starts]
    for path in (*([errata.FILE] if official else []), *files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _start(table: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The rule file that a benchmark's log is checked by first."""
    return str(table["start"].format(reference=row.get("reference", row["name"])))


def _refuse_strange(table: Mapping[str, Any], allowed: set[str], path: Path) -> None:
    if set(table) != allowed:
        raise RuleFileError(f"{path}: fields {sorted(set(table) ^ allowed)} are unknown or missing")
