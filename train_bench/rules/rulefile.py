"""A rule file in the official format -> compiled rules. Strict where the official reader is lax."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from train_bench.errors import RequestError

KEY_FIELDS = {"NAME", "REQ", "PRE", "CHECK", "POST", "FIRST_CHECK", "ATLEAST_ONE_CHECK"}
REQUIREMENT = re.compile(
    r"EXACTLY_ONE|AT_LEAST_ONE|OPTIONAL|AT_LEAST\(\d+\)|AT_LEAST_ONE_OR\(\w+(\s*,\s*\w+)*\)"
)


class RuleFileError(RequestError):
    """A rule file that cannot be taken at its word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A piece of rule code: its text for people, its compiled form for the judge."""

    text: str
    code: CodeType


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule:
    """What a rule file says of one key. `required` is the text of REQ."""

    name: str
    required: str | None
    pre: Snippet | None
    checks: tuple[Snippet, ...]
    post: Snippet | None
    first_checks: tuple[Snippet, ...]
    at_least_one_check: Snippet | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """One rule file; `name` is its path as other rule files spell it."""

    name: str
    begin: Snippet | None
    keys: Mapping[str, KeyRule]
    end_pre: Snippet | None
    end_checks: tuple[Snippet, ...]


def parse(text: str, name: str, *, duplicates_allowed: bool = False) -> RuleFile:
    """Read and compile a rule file. Compiling is trusting: only files of the installed package and of
    our own rounds may come here.

    A field given twice, an unknown field, an unknown requirement or code that does not compile raises
    `RuleFileError`. `duplicates_allowed` (an erratum) lets the last of two equal fields hold, which is
    how the official reader takes it.
    """
    records = _load(text, name, duplicates_allowed=duplicates_allowed) or []
    begin = end_pre = None
    end_checks: tuple[Snippet, ...] = ()
    keys: dict[str, KeyRule] = {}
    seen: set[str] = set()
    for word, body in _records(records, name):
        if word == "KEY":
            rule = _key_rule(body, name)
            if rule.name in keys and not duplicates_allowed:
                raise RuleFileError(f"{name} has two rules for the key {rule.name}; one would be lost.")
            keys[rule.name] = rule
            continue
        if word in seen:
            raise RuleFileError(f"{name} has two {word} blocks; at most one is read.")
        seen.add(word)
        if word == "BEGIN":
            _expect_fields(body, {"CODE"}, f"{name}, BEGIN")
            begin = _statements(body.get("CODE"), name)
        else:
            _expect_fields(body, {"PRE", "CHECK"}, f"{name}, END")
            end_pre = _statements(body.get("PRE"), name)
            end_checks = _expressions(body.get("CHECK"), name)
    return RuleFile(name=name, begin=begin, keys=keys, end_pre=end_pre, end_checks=end_checks)


def _load(text: str, name: str, *, duplicates_allowed: bool) -> Any:
    """YAML with every value a string, as the official reader takes it."""
    import yaml

    class Loader(yaml.BaseLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            fields = [self.construct_object(key) for key, _ in node.value]
            twice = sorted({str(field) for field in fields if fields.count(field) > 1})
            if twice and not duplicates_allowed:
                line = node.start_mark.line + 1
                raise RuleFileError(
                    f"{name}, line {line}: {', '.join(twice)} is given twice; one would be lost."
                )
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader=Loader)
    except yaml.YAMLError as error:
        raise RuleFileError(f"{name} is not YAML: {error}.") from error


def _records(records: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(records, list):
        raise RuleFileError(f"{name} is not a list of KEY, BEGIN and END records.")
    for record in records:
        word = next(iter(record)) if isinstance(record, dict) and len(record) == 1 else None
        if word not in ("KEY", "BEGIN", "END") or not isinstance(record[word], dict):
            raise RuleFileError(f"{name} has a record that is none of KEY, BEGIN and END: {record!r:.80}.")
        yield word, record[word]


def _key_rule(body: dict[str, Any], name: str) -> KeyRule:
    key = body.get("NAME")
    if not isinstance(key, str) or not key:
        raise RuleFileError(f"{name} has a KEY without a NAME.")
    where = f"{name}, key {key}"
    _expect_fields(body, KEY_FIELDS, where)
    required = body.get("REQ")
    if required is not None:
        required = str(required).strip()
        if not REQUIREMENT.fullmatch(required):
            raise RuleFileError(f"{where}: the requirement {required!r} is unknown.")
    at_least_one = _expressions(body.get("ATLEAST_ONE_CHECK"), where)
    if len(at_least_one) > 1:
        raise RuleFileError(f"{where}: ATLEAST_ONE_CHECK takes one expression.")
    return KeyRule(
        name=key,
        required=required,
        pre=_statements(body.get("PRE"), where),
        checks=_expressions(body.get("CHECK"), where),
        post=_statements(body.get("POST"), where),
        first_checks=_expressions(body.get("FIRST_CHECK"), where),
        at_least_one_check=at_least_one[0] if at_least_one else None,
    )


def _expect_fields(body: dict[str, Any], allowed: set[str], where: str) -> None:
    unknown = sorted(set(body) - allowed)
    if unknown:
        raise RuleFileError(
            f"{where}: the field {unknown[0]} is unknown; known are {', '.join(sorted(allowed))}."
        )


def _statements(text: Any, where: str) -> Snippet | None:
    return None if text is None else _compiled(text, "exec", where)


def _expressions(texts: Any, where: str) -> tuple[Snippet, ...]:
    if texts is None:
        return ()
    return tuple(_compiled(text, "eval", where) for text in (texts if isinstance(texts, list) else [texts]))


def _compiled(text: Any, mode: str, where: str) -> Snippet:
    try:
        return Snippet(text=text.strip(), code=compile(text.strip(), f"<{where}>", mode))
    except (SyntaxError, ValueError, AttributeError) as error:
        raise RuleFileError(f"{where}: {text!r} does not compile: {error}.") from error


class Library:
    """The rule files that a ruleset may read: those of its own folder, and what errata add.

    `root` is the folder that rule files name each other from. Nothing outside is ever compiled, so a
    log cannot lead the judge to a file of its choice.
    """

    def __init__(self, root: Path, folder: str, errata: tuple[Mapping[str, str], ...]) -> None:
        self._root = root
        self._duplicates = {erratum["duplicates"] for erratum in errata if "duplicates" in erratum}
        self._names = {f"{folder}/{path.name}" for path in (root / folder).glob("*.yaml")}
        for erratum in errata:
            if erratum.get("in", "").startswith(f"{folder}/"):
                self._names |= {path.relative_to(root).as_posix() for path in root.glob(erratum["reads"])}
        self._files: dict[str, RuleFile] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All rule files that may be read."""
        return tuple(sorted(self._names))

    def content(self, name: str) -> bytes:
        """What the digest of a ruleset is made of."""
        return (self._root / name).read_bytes()

    def get(self, name: str) -> RuleFile | None:
        """A rule file, compiled once; None where this ruleset has none of this name."""
        if name not in self._names:
            return None
        if name not in self._files:
            text = self.content(name).decode("utf-8")
            self._files[name] = parse(text, name, duplicates_allowed=name in self._duplicates)
        return self._files[name]
