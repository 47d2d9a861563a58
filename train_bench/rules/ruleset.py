"""Ruleset of a round as one frozen object: the rule files, and the rules that they do not express.

A table `rounds/<family>.yaml` defines its rounds. Those of official rounds list, per logged benchmark name,
the run count, how many runs are dropped at each end, the unit of progress, the target and the evaluation schedule, and
their rule files are read from the installed mlperf-logging package. In our rounds each benchmark's folder states all
this of itself, hyperparameters included (`stated`), and its rule file is made of that and of the round's part
(`generated`). Plan, judge and score use the same values.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from train_bench.core import plugins
from train_bench.errors import RequestError, UnknownName
from train_bench.progress import Unit
from train_bench.quality import Target, Threshold
from train_bench.rules import errata, generated, rulefile, schedule, stated
from train_bench.rules.errata import Erratum
from train_bench.rules.rulefile import RuleFile, RuleFileError
from train_bench.rules.schedule import ScheduleRule

ROUNDS = Path(__file__).parent / "rounds"

FAMILY_FIELDS = {"rounds", "rule_files", "strict", "fixed_seeds_allowed", "uncleared_cache_allowed"}
OFFICIAL_FIELDS = {"start", "benchmarks"}
OWN_FIELDS = {"rcp_level", "rcp_pruned"}

OFFICIAL_RCP_LEVEL = 0.05
"""Level of the one-sided RCP test of the official checker, which prunes points before it."""

BEST = {
    **dict.fromkeys(("AUC", "BBOX", "CLIP", "DICE", "IOU", "LDDT_CA", "MLM_accuracy", "SEGM"), 1.0),
    **dict.fromkeys(("accuracy", "mAP", "top1", "win_rate"), 1.0),
    **dict.fromkeys(("FID", "MAE", "WER", "eval_loss", "log_perplexity"), 0.0),
}
"""Best possible values of the metrics of official rounds; a folder of a benchmark states its own."""

ROUND_FIELDS = {"published", "init_minutes", "factor"}
BENCHMARK_FIELDS = {"name", "runs", "unit", "target"}
OPTIONAL_FIELDS = {"rounds", "reference", "drop", "counted", "schedule", "rcp_allowance"}


def folders() -> tuple[Path, ...]:
    """The folders of benchmarks that state their rules."""
    candidates = (one.folder for one in plugins.references().values())
    return tuple(folder for folder in candidates if (folder / stated.FILE).is_file())


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRules:
    """Rules of a round for one benchmark.

    drop          runs dropped at each end; as many may fail
    counted       what the log counts convergence in: `epoch_num`, `samples_count` or `step_num` of the
                  evaluation's metadata, or `train_samples`, which is used where its line is after the
                  last evaluation
    schedule      the evaluation schedule at a global batch size; None where the rules give none
    rcp_allowance allowed distance of a mean below the bound of the RCP test, in the benchmark's unit
    rcp_level     level of the one-sided RCP test: the probability that an equal submission fails
    rcp_pruned    whether points that their neighbours make superfluous are left out of it
    published     first day of the month in which the results of the round were published; None if they are not
    init_minutes  limit of the initialisation by division
    data          sha256 of the `train` and the `evaluation` data, where these are always the same; else None
    factor_applied whether a score is scaled by the RCP factor
    strict        a run that breaks a rule invalidates the result instead of counting as the slowest, and
                  checks that official rounds do not have are rules
    files         the rule files by the name that other files enqueue them under; `start` is the first
    generated     the text of the only rule file, which was made from what the benchmark states; None in official rounds
    digest        sha256 of all of this: what the benchmark states or its row of the table, the round, the rule
                  files, and for an official round the errata and the version of mlperf-logging
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
    rcp_level: float
    rcp_pruned: bool
    published: date | None
    init_minutes: Mapping[str, float]
    data: Mapping[str, str] | None
    factor_applied: bool
    strict: bool
    fixed_seeds_allowed: bool
    uncleared_cache_allowed: bool
    start: str
    files: Callable[[str], RuleFile]
    generated: str | None
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


class LazyMapping(Mapping[str, BenchmarkRules]):
    """Lazy mapping of a benchmark's rules: building them takes time, and invalid rules of one benchmark do not affect
    the others."""

    def __init__(self, makers: Mapping[str, Callable[[], BenchmarkRules]]) -> None:
        self._makers = makers

    def __getitem__(self, name: str) -> BenchmarkRules:
        return self._makers[name]()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


ROUND_NAME = re.compile(r"(?:(training|hpc)[-_](?:results_)?)?v?(\d+\.\d+)(\.\d+)?", re.IGNORECASE)
"""Name of an official round, known or not."""


def names() -> tuple[str, ...]:
    """All rounds, ours and the official ones, for example `mini-1.0` and `training-1.1.0`."""
    return tuple(
        f"{path.stem}-{number}" for path in sorted(ROUNDS.glob("*.yaml")) for number in _table(path)["rounds"]
    )


def full_name(name: str) -> str:
    """Round by its name, or as people and folders write it. Raises `UnknownName`."""
    found = name if name in names() else official_round(name)
    if found is None:
        hint = f" Rules of {known_rounds()}." if ROUND_NAME.fullmatch(name) else None
        raise UnknownName(what="ruleset", name=name, known=names(), hint=hint)
    return found


def official_round(name: str) -> str | None:
    """Official round that is meant by `1.1.0`, `v1.1`, `training_results_v1.1` or the like."""
    match = ROUND_NAME.fullmatch(name)
    found = f"{(match[1] or 'training').lower()}-{match[2]}{match[3] or '.0'}" if match else None
    return found if found in names() else None


def known_rounds() -> str:
    """First and last of the official rounds, as a part of a sentence."""
    spans = []
    for family, called in (("training", "training rounds"), ("hpc", "HPC rounds")):
        numbers = [name.partition("-")[2] for name in names() if name.startswith(f"{family}-")]
        spans.append(f"{called} {numbers[0]} to {numbers[-1]}")
    return f"{' and of '.join(spans)} are known"


def load(name: str) -> Ruleset:
    """A round by name."""
    return _load(name, folders())


@cache
def _load(name: str, where: tuple[Path, ...]) -> Ruleset:
    if name not in names():
        raise UnknownName(what="ruleset", name=name, known=names())
    family, _, number = name.partition("-")
    path = ROUNDS / f"{family}.yaml"
    table = _table(path)
    if not _is_official(table):
        made = {
            benchmark: cache(partial(_own, name, number, table, folder, benchmark))
            for benchmark, folder in _stated_for(name, where).items()
        }
        return Ruleset(name=name, benchmarks=LazyMapping(made))
    rows = [row for row in table["benchmarks"] if _holds(row, number, list(table["rounds"]))]
    made = {row["name"]: cache(partial(_official, name, number, table, row)) for row in rows}
    if len(made) != len(rows):
        raise RuleFileError(f"{path}: a benchmark of {name} has two rows")
    return Ruleset(name=name, benchmarks=LazyMapping(made))


def _stated_for(name: str, where: tuple[Path, ...]) -> dict[str, Path]:
    """The benchmarks that folders state for a round of ours, each with its folder."""
    stated_in: dict[str, Path] = {}
    for folder in where:
        said = stated.read(folder)
        if said["round"] not in own_rounds():
            what = f"round of our own ({folder / stated.FILE}: round)"
            raise UnknownName(what=what, name=str(said["round"]), known=own_rounds())
        for benchmark in said["benchmarks"] if said["round"] == name else ():
            if benchmark in stated_in:
                both = f"{stated_in[benchmark] / stated.FILE} and {folder / stated.FILE}"
                raise RequestError(f"Two folders state rules for {benchmark}: {both}; give one another name.")
            stated_in[benchmark] = folder
    return stated_in


def own_rounds() -> tuple[str, ...]:
    """Rounds whose rule files are generated; no official checker knows them."""
    return tuple(
        name for name in names() if not _is_official(_table(ROUNDS / f"{name.partition('-')[0]}.yaml"))
    )


def _is_official(table: Mapping[str, Any]) -> bool:
    """True if the rule files are in a folder of the installed package, `mlperf-logging/FOLDER`."""
    return str(table["rule_files"]).startswith("mlperf-logging/")


@cache
def _table(path: Path) -> dict[str, Any]:
    table: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=rulefile.UniqueKeyLoader)
    official = "rule_files" in table and _is_official(table)
    _refuse_strange(table, FAMILY_FIELDS | (OFFICIAL_FIELDS if official else OWN_FIELDS), path)
    for row in table["rounds"].values():
        _refuse_strange(row, ROUND_FIELDS, path)
    for row in table.get("benchmarks", ()):
        _refuse_strange(
            {name: row[name] for name in row if name not in OPTIONAL_FIELDS}, BENCHMARK_FIELDS, path
        )
    return table


def _holds(row: Mapping[str, Any], number: str, numbers: list[str]) -> bool:
    """True if a row of the table belongs to a round; `rounds` names the first and the last."""
    first, last = row.get("rounds", (numbers[0], numbers[-1]))
    return numbers.index(first) <= numbers.index(number) <= numbers.index(last)


def _own(ruleset: str, number: str, table: Mapping[str, Any], folder: Path, name: str) -> BenchmarkRules:
    row = stated.benchmark(folder, name)
    every_log = (ROUNDS / table["rule_files"].format(round=number)).read_text(encoding="utf-8")
    where = f"{folder / stated.FILE}: hyperparameters"
    init_minutes = table["rounds"][number]["init_minutes"]["closed"]
    made = generated.text(row, every_log, init_minutes, where)
    start = f"{name}.yaml"

    @cache
    def files(enqueued: str) -> RuleFile:
        if enqueued != start:
            raise FileNotFoundError(enqueued)
        return rulefile.parse(made, Path(start))

    own = {"start": start, "files": files, "generated": made, "errata": ()}
    digest = _digest(ruleset, number, table, row)
    digest.update(every_log.encode())
    return _benchmark(ruleset, number, table, row, digest=digest.hexdigest(), **own)


def _official(ruleset: str, number: str, table: Mapping[str, Any], row: Mapping[str, Any]) -> BenchmarkRules:
    folder = (
        package_folder("compliance_checker") / str(table["rule_files"]).format(round=number).partition("/")[2]
    )
    corrected = ruleset.removeprefix("training-")
    of_the_files = errata.of(corrected)
    start = _start(table, row)
    digest = _digest(ruleset, number, table, row)
    digest.update(importlib.metadata.version("mlperf-logging").encode())
    others = {_start(table, other) for other in table["benchmarks"]} - {start}
    for path in (errata.FILE, *sorted(folder.glob("*.yaml"))):
        if path.name not in others:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return _benchmark(
        ruleset,
        number,
        table,
        row,
        start=start,
        files=lambda enqueued: _rule_file(folder, Path(enqueued).name, of_the_files),
        generated=None,
        errata=errata.of(corrected, row["name"]),
        digest=digest.hexdigest(),
    )


def _benchmark(
    ruleset: str, number: str, table: Mapping[str, Any], row: Mapping[str, Any], **of_its_kind: Any
) -> BenchmarkRules:
    """Fields that all rows have in common."""
    return BenchmarkRules(
        name=row["name"],
        ruleset=ruleset,
        reference=row.get("reference", row["name"]),
        runs=row["runs"],
        drop=row.get("drop", 1),
        unit=Unit(row["unit"]),
        counted=row.get("counted", "epoch_num"),
        target=Target(thresholds=tuple(_threshold(threshold) for threshold in row["target"])),
        schedule=schedule.named(row["schedule"]) if "schedule" in row else None,
        rcp_allowance=row.get("rcp_allowance", 0),
        rcp_level=table.get("rcp_level", OFFICIAL_RCP_LEVEL),
        rcp_pruned=table.get("rcp_pruned", True),
        published=_month(table["rounds"][number]["published"]),
        init_minutes=table["rounds"][number]["init_minutes"],
        data=row.get("data"),
        factor_applied=table["rounds"][number]["factor"] == "applied",
        strict=table["strict"],
        fixed_seeds_allowed=table["fixed_seeds_allowed"],
        uncleared_cache_allowed=table["uncleared_cache_allowed"],
        **of_its_kind,
    )


def _month(text: str | None) -> date | None:
    return None if text is None else date.fromisoformat(f"{text}-01")


def _threshold(row: Mapping[str, Any]) -> Threshold:
    return Threshold(**{"best": BEST.get(row["metric"]), **row})


@cache
def _rule_file(folder: Path, name: str, corrections: tuple[Erratum, ...]) -> RuleFile:
    """One of the round's own files, whatever folder it was enqueued from: the open rules of 1.1.0 name the files of
    1.0.0, and the closed ResNet of 4.0.0 those of 3.1.0, which are the same (a test confirms it). A log can put any
    name into what its rules enqueue, so a name that the folder does not list is not even looked up."""
    if name not in {path.name for path in folder.glob("*.yaml")}:
        raise FileNotFoundError(name)
    return rulefile.read(
        folder / name,
        written_twice=[key for erratum in corrections for key in erratum.written_twice],
        repeated=[key for erratum in corrections for key in erratum.repeated],
    )


def package_folder(name: str) -> Path:
    """A folder of the installed mlperf-logging package, found without importing it."""
    spec = importlib.util.find_spec("mlperf_logging")
    if spec is None or not spec.submodule_search_locations:
        raise RequestError("The package mlperf-logging is not installed; pip install mlperf-logging.")
    return Path(spec.submodule_search_locations[0]) / name


def _digest(ruleset: str, number: str, table: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
    """Digest that binds a plan and a verdict to their rules: the round and the row of one benchmark, to which rule
    files are added. Other benchmarks and the date of publication are not included."""
    fields = (FAMILY_FIELDS | OWN_FIELDS | {"start"}) - {"rounds"}
    of_round = {key: value for key, value in table["rounds"][number].items() if key != "published"}
    general = {key: table[key] for key in fields if key in table}
    return hashlib.sha256(json.dumps([ruleset, of_round, general, row], sort_keys=True).encode())


def _start(table: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """First rule file of a benchmark's log."""
    return str(table["start"].format(reference=row.get("reference", row["name"])))


def _refuse_strange(table: Mapping[str, Any], allowed: set[str], path: Path) -> None:
    if set(table) != allowed:
        raise RuleFileError(f"{path}: fields {sorted(set(table) ^ allowed)} are unknown or missing")
