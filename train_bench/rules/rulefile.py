"""Rule files in the official format, parsed strictly and compiled once.

A file is a list of records: at most one BEGIN (CODE that fills the shared state `s`), any number of KEY
(what a log line of that key has to satisfy), at most one END (checks after the last line). In an
expression `v` is the line's value and metadata, `ll` the line, `s` the state. Only files of the installed
mlperf-logging package, and what `generated` makes of a round of ours, are ever compiled.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import yaml

KEY_FIELDS = {"NAME", "REQ", "PRE", "CHECK", "POST", "FIRST_CHECK", "ATLEAST_ONE_CHECK"}
END_FIELDS = {"PRE", "CHECK"}
REQUIREMENT = re.compile(r"EXACTLY_ONE|AT_LEAST_ONE|OPTIONAL|AT_LEAST\(\d+\)|AT_LEAST_ONE_OR\([\w, ]+\)")


Pairs = list[tuple[str, Any]]


class RuleFileError(ValueError):
    """A rule file violates its own format. A defect of the file, never of a user's request."""


@dataclass(frozen=True, slots=True)
class Check:
    """A compiled condition: its text and its code."""

    text: str
    code: CodeType


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule:
    """Rule for the lines of one key. `lost_checks` are in the file but dropped by the official checker, because the
    record has its field CHECK twice."""

    name: str
    requirement: str | None
    before: CodeType | None
    checks: tuple[Check, ...]
    lost_checks: tuple[Check, ...]
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


class UniqueKeyLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain YAML in which a key written twice is an error."""


class _RuleLoader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Scalars stay strings, as the official checker reads them; a mapping is a list of pairs here, because
    errata may allow a key written twice."""


def _unique_mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:
    pairs = _pairs(loader, node)
    _refuse_twice([key for key, _ in pairs], str(node.start_mark))
    return dict(pairs)


def _pairs(loader: Any, node: yaml.MappingNode) -> list[tuple[str, Any]]:
    built = loader.construct_object
    return [(built(key), built(value, deep=True)) for key, value in node.value]


UniqueKeyLoader.add_constructor("tag:yaml.org,2002:map", _unique_mapping)
_RuleLoader.add_constructor("tag:yaml.org,2002:map", _pairs)


def read(path: Path, *, written_twice: Sequence[str] = (), repeated: Sequence[str] = ()) -> RuleFile:
    """Read and compile one file. Raises `RuleFileError` for anything that the format does not have.

    Errata allow the keys `written_twice` to have a field twice, and the keys `repeated` two records.
    """
    return parse(path.read_text(encoding="utf-8"), path, written_twice=written_twice, repeated=repeated)


def parse(
    text: str, path: Path, *, written_twice: Sequence[str] = (), repeated: Sequence[str] = ()
) -> RuleFile:
    """Parse the text of a file, which errors call `path`."""
    records = yaml.load(text, Loader=_RuleLoader) or []
    begins, ends = _records(records, "BEGIN"), _records(records, "END")
    keys: dict[str, KeyRule] = {}
    for record in _records(records, "KEY"):
        rule = _key_rule(record, path, written_twice)
        if rule.name in keys and rule.name not in repeated:
            raise RuleFileError(f"{path}: two records for the key '{rule.name}'")
        keys[rule.name] = rule
    known = len(_records(records, "KEY")) + len(begins) + len(ends)
    if known != len(records) or len(begins) > 1 or len(ends) > 1:
        raise RuleFileError(f"{path}: expected KEY records, at most one BEGIN and at most one END")
    end = _fields(ends[0], END_FIELDS, path) if ends else {}
    return RuleFile(
        begin=_code(dict(begins[0])["CODE"], path) if begins else None,
        keys=keys,
        end_before=_code(end.get("PRE"), path),
        end_checks=_checks(end.get("CHECK"), path),
    )


def _records(records: list[Pairs], kind: str) -> list[Pairs]:
    return [value for record in records for name, value in record if name == kind]


def _key_rule(record: Pairs, path: Path, written_twice: Sequence[str]) -> KeyRule:
    name = str(dict(record)["NAME"]).strip()
    fields = _fields(record, KEY_FIELDS, path, twice=name in written_twice)
    requirement = fields["REQ"].strip() if "REQ" in fields else None
    if requirement is not None and not REQUIREMENT.fullmatch(requirement):
        raise RuleFileError(f"{path}: unknown requirement {requirement} of {name}")
    at_least_one = _checks(fields.get("ATLEAST_ONE_CHECK"), path)
    checks = [value for field, value in record if field == "CHECK"]
    return KeyRule(
        name=name,
        requirement=requirement,
        before=_code(fields.get("PRE"), path),
        checks=_checks(fields.get("CHECK"), path),
        lost_checks=tuple(check for lost in checks[:-1] for check in _checks(lost, path)),
        first_checks=_checks(fields.get("FIRST_CHECK"), path),
        at_least_one=at_least_one[0] if at_least_one else None,
        after=_code(fields.get("POST"), path),
    )


def _fields(record: Pairs, allowed: set[str], path: Path, *, twice: bool = False) -> dict[str, Any]:
    names = [name for name, _ in record]
    strange = sorted(set(names) - allowed)
    if strange:
        where = dict(record).get("NAME", "END")
        raise RuleFileError(f"{path}: unknown field {', '.join(strange)} in {where}")
    if not twice:
        _refuse_twice(names, str(path))
    return dict(record)


def _refuse_twice(names: Sequence[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise RuleFileError(f"{where}: '{name}' is written twice")


def _checks(texts: str | list[str] | None, path: Path) -> tuple[Check, ...]:
    if not texts:
        return ()
    listed = [texts] if isinstance(texts, str) else texts
    return tuple(Check(text.strip(), _compiled(text.strip(), path, "eval")) for text in listed)


def _code(text: str | None, path: Path) -> CodeType | None:
    return _compiled(text.strip(), path, "exec") if text and text.strip() else None


def _compiled(text: str, path: Path, mode: str) -> CodeType:
    tree = _OfNumbers().visit(ast.parse(text, str(path), mode))
    return compile(ast.fix_missing_locations(tree), str(path), mode)


class _OfNumbers(ast.NodeTransformer):
    """Guard against memory exhaustion: every `a * b` becomes `times(a, b)` and every `a % b` becomes `remainder(a, b)`.
    With values of a log, Python would repeat a text, or pad it, as often as a number says."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = {ast.Mult: "times", ast.Mod: "remainder"}.get(type(node.op))
        if name is None:
            return node
        return ast.Call(func=ast.Name(name, ast.Load()), args=[node.left, node.right], keywords=[])


def _numbers_only(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def of_numbers(first: Any, second: Any) -> Any:
        if not isinstance(first, (int, float)) or not isinstance(second, (int, float)):
            raise TypeError("rules calculate with numbers only")
        return operation(first, second)

    return of_numbers


OF_NUMBERS = {"times": _numbers_only(operator.mul), "remainder": _numbers_only(operator.mod)}
"""Functions of compiled rules in place of `*` and `%`; each raises `TypeError` for what is not a number."""
