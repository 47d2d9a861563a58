"""Rules of a benchmark's own folder, in `rules.yaml`: data, never executed.

round: mini-1.0
benchmarks:
  NAME:                       as its logs spell it
    runs, unit, target, schedule
    drop, counted, rcp_allowance     where they are not 1, epoch_num and 0
    data: {train: SHA256, evaluation: SHA256}    of data that are always the same, as `data_fingerprint` logs them
    hyperparameters:          those whose values are this benchmark's alone
hyperparameters:
  KEY: words of `bounds`, and
       logged: at_least_once  where once is not what is meant
       when: {KEY: VALUE}     only with this value of another key, which has one_of
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from train_bench.errors import RequestError
from train_bench.progress import Unit
from train_bench.rules import schedule
from train_bench.rules.bounds import number, refused
from train_bench.rules.rulefile import UniqueKeyLoader

FILE = "rules.yaml"

FACTS = {"runs", "unit", "target", "schedule"}
OPTIONAL_FACTS = {"drop", "counted", "rcp_allowance", "data", "hyperparameters"}
COUNTED = ("epoch_num", "samples_count", "step_num", "train_samples")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


@cache
def read(folder: Path) -> Mapping[str, Any]:
    """Read the file of a folder: `round`, `benchmarks` and `hyperparameters`. Raises `RequestError` where it cannot be
    read; the rules of a benchmark are validated on access."""
    path = folder / FILE
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=UniqueKeyLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise RequestError(f"{path} cannot be read: {error}.") from error
    _refuse_fields(content, {"round", "benchmarks", "hyperparameters"}, set(), str(path))
    for field in ("benchmarks", "hyperparameters"):
        _refuse_names(content[field], f"{path}: {field}")
    return content  # type: ignore[no-any-return]


def benchmark(folder: Path, name: str) -> dict[str, Any]:
    """One benchmark of the folder as a row of a round's table: thresholds with the `best` value that their metric
    can have, and all its hyperparameters."""
    content = read(folder)
    where = f"{folder / FILE}: benchmarks.{name}"
    facts = content["benchmarks"][name]
    _refuse_fields(facts, FACTS, OPTIONAL_FACTS, where)
    shared, own = content["hyperparameters"], facts.get("hyperparameters", {})
    _refuse_names(own, f"{where}.hyperparameters")
    if twice := sorted(set(shared) & set(own)):
        raise refused(
            f"{where}.hyperparameters", ", ".join(twice), "keys that the file does not state for all, too"
        )
    _refuse_values(facts, where)
    return {
        **facts,
        "name": name,
        "reference": folder.name,
        "target": _thresholds(facts["target"], f"{where}.target"),
        "hyperparameters": shared | own,
    }


def _thresholds(target: object, where: str) -> list[dict[str, Any]]:
    """`{mAP: {at_least: 0.3}}`, or `at_most` where less is better."""
    _refuse_names(target, where)
    assert isinstance(target, Mapping)
    thresholds = []
    for metric, bound in target.items():
        at = f"{where}.{metric}"
        wanted = set(bound) & {"at_least", "at_most"} if isinstance(bound, Mapping) else set()
        if len(wanted) != 1 or set(bound) - wanted - {"best"}:
            raise refused(at, bound, "at_least or at_most with a number, and best where that is not 1 or 0")
        higher = wanted == {"at_least"}
        value = number(bound[wanted.pop()], at)
        best = number(bound.get("best", 1.0 if higher else 0.0), f"{at}.best")
        if (best < value) if higher else (best > value):
            raise refused(at, bound, f"a target that the best value, {best:g}, reaches; state best: NUMBER")
        thresholds.append({"metric": metric, "value": value, "higher_is_better": higher, "best": best})
    if not thresholds:
        raise refused(where, target, "at least one metric")
    return thresholds


def _refuse_values(facts: Mapping[str, Any], where: str) -> None:
    for field, least in (("runs", 1), ("drop", 0)):
        value = facts.get(field, least)
        if type(value) is not int or value < least:
            raise refused(f"{where}.{field}", value, f"a whole number of {least} or more")
    if facts["runs"] <= 2 * facts.get("drop", 1):
        raise refused(f"{where}.runs", facts["runs"], "more than are dropped (one at each end, or drop)")
    for field, known in (("unit", [unit.value for unit in Unit]), ("counted", COUNTED)):
        if field in facts and facts[field] not in known:
            raise refused(f"{where}.{field}", facts[field], f"one of {', '.join(known)}")
    number(facts.get("rcp_allowance", 0), f"{where}.rcp_allowance", least=0)
    if "data" in facts:
        _refuse_fields(facts["data"], {"train", "evaluation"}, set(), f"{where}.data")
        for part, value in facts["data"].items():
            if not isinstance(value, str) or not DIGEST.fullmatch(value):
                raise refused(f"{where}.data.{part}", value, "a sha256 of 64 hexadecimal digits")
    _refuse_schedule(facts["schedule"], f"{where}.schedule")


def _refuse_schedule(row: object, where: str) -> None:
    if not isinstance(row, Mapping) or row.get("name") not in schedule.NAMED:
        raise refused(where, row, f"name: one of {', '.join(schedule.NAMED)}, and its parameters")
    parameters = {str(key): value for key, value in row.items() if key != "name"}
    try:
        inspect.signature(schedule.NAMED[row["name"]]).bind(1, **parameters)
    except TypeError as error:
        raise RequestError(f"{where} is {dict(row)}; {error}.") from error
    for key, value in parameters.items():
        if isinstance(value, list) != (key == "first" and row["name"] == "every") or value == []:
            raise refused(f"{where}.{key}", value, "a number, or for first of every a list of these")
        for item in value if isinstance(value, list) else [value]:
            number(item, f"{where}.{key}", least=0)


def _refuse_fields(content: object, needed: set[str], optional: set[str], where: str) -> None:
    if not isinstance(content, Mapping):
        raise refused(where, content, f"the fields {', '.join(sorted(needed))}")
    strange, missing = set(content) - needed - optional, needed - set(content)
    if strange or missing:
        allowed = (
            f"{', '.join(sorted(needed))} and, where needed, {', '.join(sorted(optional)) or 'nothing else'}"
        )
        wrong = f"unknown {sorted(map(str, strange))}" if strange else f"missing {sorted(missing)}"
        raise RequestError(f"{where} has fields that are {wrong}; allowed: {allowed}.")


def _refuse_names(content: object, where: str) -> None:
    """Validate names: those of benchmarks, keys and metrics become parts of expressions."""
    if not isinstance(content, Mapping):
        raise refused(where, content, "names with what is said of them")
    for name in content:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise refused(where, name, "names of letters, digits and _ that begin with a letter")
