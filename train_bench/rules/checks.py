"""Carries rule files out over the lines of a log, with the semantics of the official checker.

A line that satisfies nothing is no crash but a `Failure`. What differs from the official checker on
purpose: a rule whose evaluation raises is reported as such instead of through a bare `except`, and
nothing is shared between two calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from train_bench.event import Event
from train_bench.rules.rulefile import Check, KeyRule, RuleFile
from train_bench.rules.ruleset import BenchmarkRules

FIRST_ONE_ONLY = "submission_"

# Keys that only a run can log; a plan is not asked for them.
OF_THE_RUN = frozenset(
    {
        *(
            "cache_clear",
            "init_start",
            "init_stop",
            "run_start",
            "run_stop",
            "seed",
            "weights_initialization",
        ),
        *("block_start", "block_stop", "epoch_start", "epoch_stop", "eval_start", "eval_stop"),
        *("eval_accuracy", "eval_error", "train_samples", "eval_samples"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A rule that a log (or a plan) breaks. `kind`: `check` (a line's value), `target` (no line
    reached it), `count` (how often a key occurs), `end` (after the last line)."""

    kind: str
    key: str | None
    rule: str
    line: int = 0
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A log line as expressions see it: `ll.timestamp` in milliseconds, `ll.key`, `ll.value`."""

    timestamp: float
    key: str
    value: Mapping[str, Any]
    lineno: int
    full_string: str


def check(rules: BenchmarkRules, events: Iterable[Event]) -> list[Failure]:
    """All rules that the lines of one run break, in the order of the rule files."""
    failures, _ = _carry_out(rules, events)
    return failures


def preflight(rules: BenchmarkRules, values: Mapping[str, Any]) -> list[Failure]:
    """The rules that `values` (mllog key -> value) would break if a run logged them: their checks, and
    keys that are demanded and missing. What only a run can log is not demanded."""
    events = [Event(key=key, value=value, time_ms=0) for key, value in values.items()]
    failures, demanded = _carry_out(rules, events)
    broken = [failure for failure in failures if failure.kind == "check"]
    missing = [failure for failure in demanded if not _alternatives(failure) & OF_THE_RUN]
    return broken + missing


def _alternatives(failure: Failure) -> set[str]:
    return {str(failure.key), *_named_alternatives(failure.rule)}


def _carry_out(rules: BenchmarkRules, events: Iterable[Event]) -> tuple[list[Failure], list[Failure]]:
    """Returns all failures, and those among them that say that a demanded key never occurred."""
    lines = [_line(event) for event in events]
    by_key: dict[str, list[Failure]] = {}
    final: list[Failure] = []
    queue, done = [rules.start], set()
    while queue:
        name = queue.pop(0)
        if name in done:
            continue
        done.add(name)
        try:
            file = rules.files(name)
        except FileNotFoundError:
            final.append(Failure(kind="end", key=None, rule=f"there are rules {name}"))
            continue
        for key in file.keys:  # a later file's rule of a key takes the place of an earlier one's
            by_key.pop(key, None)
        for failure in _run_file(file, lines, queue.append):
            if failure.key is not None and failure.kind != "target" and not _named_alternatives(failure.rule):
                by_key.setdefault(failure.key, []).append(failure)
            else:
                final.append(failure)
    failures = [failure for listed in by_key.values() for failure in listed] + final
    return failures, [failure for failure in failures if failure.kind == "count" and failure.value == 0]


def _line(event: Event) -> _Line:
    return _Line(
        timestamp=event.time_ms,
        key=event.key,
        value={"value": event.value, "metadata": event.metadata},
        lineno=event.line,
        full_string=event.key,
    )


def _run_file(file: RuleFile, lines: Sequence[_Line], enqueue: Any) -> list[Failure]:
    state: dict[str, Any] = {"enqueue_config": enqueue, "s": {}, "is_integer": _is_integer, "math": math}
    failures: list[Failure] = []
    if file.begin is not None:
        exec(file.begin, state)
    counts: dict[str, list[Any]] = {key: [] for key in file.keys}
    reached = {key: False for key, rule in file.keys.items() if rule.at_least_one is not None}
    for line in lines:
        rule = file.keys.get(line.key)
        if rule is None:
            continue
        first = not counts[line.key]
        counts[line.key].append(line.value["value"])
        if first or not line.key.startswith(FIRST_ONE_ONLY):
            failures += _execute(rule.before, line, state)
            failures += _all_failed(rule.checks, line, state)
            failures += _execute(rule.after, line, state)
        if first:
            failures += [
                failed for failed in (_failed(item, line, state) for item in rule.first_checks) if failed
            ]
        if rule.at_least_one is not None and _failed(rule.at_least_one, line, state) is None:
            reached[line.key] = True
    for key, once in reached.items():
        text = file.keys[key].at_least_one
        if text is not None and counts[key] and not once:
            failures.append(Failure(kind="target", key=key, rule=text.text, value=counts[key][-1]))
    failures += _counted(file.keys, counts)
    return failures + _ended(file, state)


def _execute(code: CodeType | None, line: _Line, state: dict[str, Any]) -> list[Failure]:
    if code is None:
        return []
    try:
        exec(code, state, {"ll": line, "v": line.value})
    except Exception as error:
        return [_broken(line, f"{type(error).__name__}: {error}")]
    return []


def _all_failed(items: Sequence[Check], line: _Line, state: dict[str, Any]) -> list[Failure]:
    return [failed for failed in (_failed(item, line, state) for item in items) if failed is not None]


def _failed(item: Check, line: _Line, state: dict[str, Any]) -> Failure | None:
    try:
        passed = eval(item.code, state, {"ll": line, "v": line.value})
    except Exception:
        passed = False  # a value of the wrong type satisfies no rule
    return None if passed else _broken(line, item.text)


def _broken(line: _Line, rule: str) -> Failure:
    return Failure(kind="check", key=line.key, rule=rule, line=line.lineno, value=line.value["value"])


def _counted(keys: Mapping[str, KeyRule], counts: Mapping[str, list[Any]]) -> list[Failure]:
    failures = []
    told: set[frozenset[str]] = set()
    for key, rule in keys.items():
        requirement = rule.requirement
        if requirement is None or requirement == "OPTIONAL":
            continue
        values = counts[key]
        alternatives = frozenset({key, *_named_alternatives(requirement)})
        if requirement.startswith("AT_LEAST_ONE_OR"):
            missing = not any(counts.get(name) for name in alternatives) and alternatives not in told
            told.add(alternatives)
        elif requirement == "EXACTLY_ONE":
            missing = not values or any(value != values[0] for value in values)
        elif requirement == "AT_LEAST_ONE":
            missing = not values
        else:
            missing = len(values) < _least(requirement)
        if missing:
            failures.append(Failure(kind="count", key=key, rule=requirement, value=len(values)))
    return failures


def _named_alternatives(requirement: str) -> list[str]:
    if not requirement.startswith("AT_LEAST_ONE_OR("):
        return []
    return [name.strip() for name in requirement[len("AT_LEAST_ONE_OR(") : -1].split(",")]


def _least(requirement: str) -> int:
    """The number in `AT_LEAST(n)`."""
    return int(requirement[len("AT_LEAST(") : -1])


def _ended(file: RuleFile, state: dict[str, Any]) -> list[Failure]:
    try:
        if file.end_before is not None:
            exec(file.end_before, state)
        return [
            Failure(kind="end", key=None, rule=item.text)
            for item in file.end_checks
            if not eval(item.code, state)
        ]
    except Exception as error:
        return [Failure(kind="end", key=None, rule=f"{type(error).__name__}: {error}")]


def _is_integer(value: float) -> bool:
    return abs(round(value) - value) < 0.00001
