"""One rule file in the official format, read strictly and compiled once.

A file is a list of records: at most one BEGIN (CODE that fills the shared state `s`), any number of KEY
(what a log line of that key has to satisfy), at most one END (checks after the last line). In an
expression `v` is the line's value and metadata, `ll` the line, `s` the state. Only files of the installed
mlperf-logging package and of our own rounds are ever compiled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import yaml

KEY_FIELDS = {"NAME", "REQ", "PRE", "CHECK", "POST", "FIRST_CHECK", "ATLEAST_ONE_CHECK"}
END_FIELDS = {"PRE", "CHECK"}
REQUIREMENT = re.compile(r"EXACTLY_ONE|AT_LEAST_ONE|OPTIONAL|AT_LEAST\(\d+\)|AT_LEAST_ONE_OR\([\w, ]+\)")


class RuleFileError(ValueError):
    """A rule file breaks its own format. A defect of the file, never of a user's request."""


@dataclass(frozen=True, slots=True)
class Check:
    """An expression that has to be true: its text and its code."""

    text: str
    code: CodeType


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule:
    """What holds for the lines of one key."""

    name: str
    requirement: str | None
    before: CodeType | None
    checks: tuple[Check, ...]
    first_checks: tuple[Check, ...]
    at_least_one: Check | None
    after: CodeType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """A compiled file."""

    begin: CodeType | None
    keys: Mapping[str, KeyRule]
    end_before: CodeType | None
    end_checks: tuple[Check, ...]


class _StrictLoader(yaml.BaseLoader):
    """Scalars stay strings, as the official checker reads them; a key written twice is an error."""


def unique_mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:
    """Constructor of a mapping for a yaml loader that refuses a key written twice."""
    built = loader.construct_object
    pairs = [(built(key), built(value, deep=True)) for key, value in node.value]
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise RuleFileError(f"{node.start_mark}: '{key}' is written twice")
    return dict(pairs)


_StrictLoader.add_constructor("tag:yaml.org,2002:map", unique_mapping)


def read(path: Path) -> RuleFile:
    """Read and compile one file. Raises `RuleFileError` for anything that the format does not have."""
    records = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader) or []
    begins, ends = _records(records, "BEGIN"), _records(records, "END")
    keys: dict[str, KeyRule] = {}
    for record in _records(records, "KEY"):
        rule = _key_rule(record, path)
        if rule.name in keys:
            raise RuleFileError(f"{path}: two records for the key '{rule.name}'")
        keys[rule.name] = rule
    if len(keys) + len(begins) + len(ends) != len(records) or len(begins) > 1 or len(ends) > 1:
        raise RuleFileError(f"{path}: expected KEY records, at most one BEGIN and at most one END")
    end = ends[0] if ends else {}
    _refuse_strange_fields(end, END_FIELDS, path)
    return RuleFile(
        begin=_code(begins[0]["CODE"], path) if begins else None,
        keys=keys,
        end_before=_code(end.get("PRE"), path),
        end_checks=_checks(end.get("CHECK"), path),
    )


def _records(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record[kind] for record in records if kind in record]


def _key_rule(record: dict[str, Any], path: Path) -> KeyRule:
    _refuse_strange_fields(record, KEY_FIELDS, path)
    requirement = record["REQ"].strip() if "REQ" in record else None
    if requirement is not None and not REQUIREMENT.fullmatch(requirement):
        raise RuleFileError(f"{path}: unknown requirement {requirement} of {record['NAME']}")
    at_least_one = _checks(record.get("ATLEAST_ONE_CHECK"), path)
    return KeyRule(
        name=record["NAME"].strip(),
        requirement=requirement,
        before=_code(record.get("PRE"), path),
        checks=_checks(record.get("CHECK"), path),
        first_checks=_checks(record.get("FIRST_CHECK"), path),
        at_least_one=at_least_one[0] if at_least_one else None,
        after=_code(record.get("POST"), path),
    )


def _refuse_strange_fields(record: dict[str, Any], allowed: set[str], path: Path) -> None:
    strange = sorted(set(record) - allowed)
    if strange:
        raise RuleFileError(f"{path}: unknown field {', '.join(strange)} in {record.get('NAME', 'END')}")


def _checks(texts: str | list[str] | None, path: Path) -> tuple[Check, ...]:
    if not texts:
        return ()
    listed = [texts] if isinstance(texts, str) else texts
    return tuple(Check(text.strip(), compile(text.strip(), str(path), "eval")) for text in listed)


def _code(text: str | None, path: Path) -> CodeType | None:
    return compile(text.strip(), str(path), "exec") if text and text.strip() else None
