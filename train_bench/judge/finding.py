"""Finding on a log or an entry, and its grade."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.logs.record import RunRecord
from train_bench.rules.explain import paragraph
from train_bench.rules.ruleset import BenchmarkRules

# A rule is broken; the run did not converge and counts as the slowest; a reviewer should look, nothing is
# broken by it alone; a rule is broken as the official checker reads it, and an erratum takes that back.
BREAKS, SLOW, REVIEW, WAIVED = "breaks", "slow", "review", "waived"

LONGEST_VALUE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`check` is the kind, `line` counts from 1 (0: no line of its own). `message` is for people and complete; the
    other fields repeat its parts if they are known: the logged value, the allowed one, the paragraph of the training
    rules, the remedy, and the erratum that waives it."""

    check: str
    grade: str
    file: str
    line: int
    key: str | None
    message: str
    value: Any = None
    allowed: str | None = None
    paragraph: str | None = None
    next_step: str | None = None
    erratum: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON; a value without a JSON form becomes text."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"value": _plain(self.value)}


def _plain(value: Any) -> Any:
    try:
        if len(json.dumps(value, allow_nan=False)) <= LONGEST_VALUE:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    return repr(value)[:LONGEST_VALUE]


def finding(
    record: RunRecord,
    rules: BenchmarkRules,
    check: str,
    message: str,
    *,
    line: int = 0,
    key: str | None = None,
    value: Any = None,
    grade: str | None = None,
) -> Finding:
    """Finding of one of our own checks: a broken rule in a strict round, for review in an official one."""
    return Finding(
        check=check,
        grade=grade or (BREAKS if rules.strict else REVIEW),
        file=record.file,
        line=line,
        key=key,
        message=message,
        value=value,
        paragraph=paragraph(key),
    )


def file_finding(
    file: str | Path,
    check: str,
    message: str,
    *,
    line: int = 0,
    key: str | None = None,
    value: Any = None,
    grade: str = REVIEW,
) -> Finding:
    """Finding, for review if nothing else is said, on a file of any kind or on a campaign's folder."""
    return Finding(check=check, grade=grade, file=str(file), line=line, key=key, message=message, value=value)
