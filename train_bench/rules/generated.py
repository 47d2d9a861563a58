"""Generator of rule files: the round's part and a benchmark's own rules -> one file in the official format, which the
official compliance checker (`--config FILE`) and our judge read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from string import Template
from typing import Any

from train_bench.progress import Unit
from train_bench.rules.bounds import expressions, literal, refused

REQUIREMENTS = {"once": "EXACTLY_ONE", "at_least_once": "AT_LEAST_ONE"}
SAME_IN_EVERY_LINE = "s['values'].setdefault(ll.key, v['value']) == v['value']"


def text(row: Mapping[str, Any], every_log: str, init_minutes: float, where: str) -> str:
    """The rule file of one benchmark. `every_log` is the round's part, with `$name` for the variable parts. Raises
    `RequestError`, beginning with `where`, for rules that are not allowed."""
    metrics = [threshold["metric"] for threshold in row["target"]]
    general = Template(every_log).substitute(
        benchmark=row["name"],
        init_minutes=literal(init_minutes),
        of_a_data_set="OPTIONAL" if row["unit"] == Unit.GENERATION.value else "EXACTLY_ONE",
        quality="isinstance(v['value'], (int, float))"
        if len(metrics) == 1
        else f"sorted(v['value']) == {sorted(metrics)!r}",
        target=_target(row["target"]),
    )
    keys = row["hyperparameters"]
    taken = set(re.findall(r"^    NAME: (\w+)$", general, re.MULTILINE)) & set(keys)
    if taken:
        raise refused(where, ", ".join(sorted(taken)), "keys that the round does not have rules for itself")
    return "".join([general, *(_record(key, keys, f"{where}.{key}") for key in keys)])


def _target(thresholds: list[dict[str, Any]]) -> str:
    """Every metric at its target or beyond, and not beyond its best possible value."""
    parts = []
    for threshold in thresholds:
        subject = f"v['value']['{threshold['metric']}']" if len(thresholds) > 1 else "v['value']"
        low, high = sorted((threshold["value"], threshold["best"]))
        parts.append(f"{low!r} <= {subject} <= {high!r}")
    return " and ".join(parts)


def _record(key: str, keys: Mapping[str, Any], where: str) -> str:
    entry = keys[key]
    if not isinstance(entry, Mapping):
        raise refused(where, entry, "words with their values, for example {above: 0}")
    bounds = {word: value for word, value in entry.items() if word not in ("logged", "when")}
    checks = expressions(bounds, where)
    logged = entry.get("logged", "once")
    if not isinstance(logged, str) or logged not in REQUIREMENTS:
        raise refused(f"{where}.logged", logged, f"one of {', '.join(REQUIREMENTS)}")
    requirement = REQUIREMENTS[logged]
    if "when" in entry:
        if "logged" in entry:
            raise refused(f"{where}.logged", logged, "nothing beside when")
        choice, value = _choice(keys, entry["when"], f"{where}.when")
        checks = [f"s['values'].get({choice!r}) == {value!r}", SAME_IN_EVERY_LINE, *checks]
        others = _otherwise(key, keys, choice, value)
        requirement = f"AT_LEAST_ONE_OR({', '.join(others)})" if others else "OPTIONAL"
    hangs_on_it = any(key in _when(other) for other in keys.values())
    lines = [f"\n- KEY:\n    NAME: {key}\n    REQ: {requirement}\n    CHECK:\n"]
    lines += [f"        - {_quoted(check)}\n" for check in checks]
    if hangs_on_it:
        lines.append("    POST: \" s['values'][ll.key] = v['value'] \"\n")
    return "".join(lines)


def _choice(keys: Mapping[str, Any], when: object, where: str) -> tuple[str, str]:
    """The key that a conditional hyperparameter depends on, and its value."""
    if isinstance(when, Mapping) and len(when) == 1:
        ((key, value),) = when.items()
        chosen = keys.get(key)
        values = chosen.get("one_of") if isinstance(chosen, Mapping) else None
        if isinstance(value, str) and isinstance(values, list) and value in values:
            return key, value
    raise refused(where, when, "one key that has one_of, with one of these values")


def _otherwise(key: str, keys: Mapping[str, Any], choice: str, value: str) -> list[str]:
    """For each other value of the choice one of its keys. Any would do, since none is allowed with this value; the one
    at the same position reads most naturally."""
    by_value: dict[str, list[str]] = {}
    for name, entry in keys.items():
        if choice in _when(entry):
            by_value.setdefault(str(_when(entry)[choice]), []).append(name)
    place = by_value.pop(value).index(key)
    return [names[min(place, len(names) - 1)] for names in by_value.values()]


def _when(entry: object) -> Mapping[str, Any]:
    when = entry.get("when") if isinstance(entry, Mapping) else None
    return when if isinstance(when, Mapping) else {}


def _quoted(check: str) -> str:
    return json.dumps(f" {check} ", ensure_ascii=False)
