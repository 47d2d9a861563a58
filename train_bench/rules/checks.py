"""Evaluation of rule files over the lines of a log, with the semantics of the official checker.

A line that breaks a rule is a `Failure`, not a crash. What differs from the official checker on
purpose: a rule whose evaluation raises is reported as such instead of through a bare `except`, and
nothing is shared between two calls.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from train_bench.core.event import Event, Events, OtherMetadata
from train_bench.rules.errata import Erratum
from train_bench.rules.expected import expected_numbers
from train_bench.rules.rulefile import OF_NUMBERS, Check, KeyRule, RuleFile
from train_bench.rules.ruleset import BenchmarkRules

FIRST_ONE_ONLY = "submission_"

# Keys that only a run can log; not required of a plan.
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
        "actual_selfplay_games_per_generation",
    }
)


ROUNDING = 1e-6
"""Share of the last decimal place by which half of it may be exceeded: a number in between is rounded either way."""

LONGEST_FILLED = 60
"""Longer texts are replaced by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A rule that a log (or a plan) breaks. `kind`: `check` (a line's value), `target` (no line
    reached it), `count` (how often a key occurs), `end` (after the last line), `absent` (there is no such rule
    file). `lost` marks a rule that the
    official checker drops when it reads its file. `expected` are the numbers that a rule with an equality asks for."""

    kind: str
    key: str | None
    rule: str
    line: int = 0
    value: Any = None
    lost: bool = False
    expected: tuple[int | float, ...] = ()


@dataclass(slots=True)
class _Line:
    """A log line as the expressions access it: `ll.timestamp` in milliseconds, `ll.key`, `ll.value`."""

    timestamp: float
    key: str
    value: Mapping[str, Any]
    lineno: int
    full_string: str


def check(rules: BenchmarkRules, events: Iterable[Event]) -> list[Failure]:
    """All rules that the lines of one run break."""
    checking = Checking(rules, events)
    return checking.finish()


def preflight(rules: BenchmarkRules, values: Mapping[str, Any]) -> list[Failure]:
    """The rules that `values` (mllog key -> value) would break if a run logged them: their checks, required keys that
    are missing, and missing rule files. Keys that only a run can log are not required."""
    failures = check(rules, [Event(key=key, value=value, time_ms=0) for key, value in values.items()])
    broken = [failure for failure in failures if failure.kind in ("check", "absent")]
    missing = [
        failure
        for failure in failures
        if failure.kind == "count" and failure.value == 0 and not _alternatives(failure) & OF_THE_RUN
    ]
    return broken + missing


def demands(rules: BenchmarkRules, key: str) -> bool:
    """True if the rules require `key` in a log."""
    return any(failure.kind == "count" and failure.key == key for failure in check(rules, []))


def waived_by(rules: BenchmarkRules, failure: Failure, logged: Container[str]) -> Erratum | None:
    """The erratum that waives a failure in a log with the keys `logged`."""
    for erratum in rules.errata:
        if failure.key in erratum.waived and (
            not erratum.if_logged or any(key in logged for key in erratum.if_logged)
        ):
            return erratum
        if is_within_rounding(erratum, failure):
            return erratum
    return None


def is_within_rounding(erratum: Erratum, failure: Failure) -> bool:
    """True for a number that differs from the expected one by no more than the rounding of an erratum. Whole numbers
    are not rounded."""
    places = dict(erratum.rounded).get(str(failure.key))
    apart = 0.0 if places is None else (0.5 + ROUNDING) * 10.0**-places
    return type(failure.value) is float and any(
        type(number) is float and math.isclose(failure.value, number, rel_tol=erratum.near, abs_tol=apart)
        for number in failure.expected
    )


def _alternatives(failure: Failure) -> set[str]:
    return {str(failure.key), *_named_alternatives(failure.rule)}


class Checking:
    """The rule files over the lines of one log, which may still be growing."""

    def __init__(self, rules: BenchmarkRules, events: Iterable[Event] = ()) -> None:
        self._rules = rules
        self._events = events if isinstance(events, Events) else Events(events)
        self._files: list[_FileCheck] = []
        self._asked: set[str] = set()
        self._absent: list[Failure] = []
        self._enqueue(rules.start)
        self._catch_up()

    @property
    def crash(self) -> str | None:
        """Exception that ends the official checker, which does not guard targets, code after the last line, and rule
        files that are not there."""
        raised = (file.crash for file in self._files if file.crash is not None)
        return next(raised, None) or next((f"not true that {one.rule}" for one in self._absent), None)

    def feed(self, *events: Event) -> None:
        """Feed the next lines. Files share nothing, so each may take all lines before the next does."""
        for event in events:
            self._events.add(*event)
        self._catch_up()

    def broken_so_far(self) -> list[Failure]:
        """Irreversible violations: values that no later line can correct."""
        return [failure for failure in self._without_overridden(self._by_file()) if failure.kind == "check"]

    def finish(self) -> list[Failure]:
        """All violations, after the last line."""
        for file in self._files:  # grows during iteration
            if file.wants_whole_log:
                file.begin_whole(self._events)
                self._catch_up()
        return (
            self._without_overridden([(file, file.failures + file.finish()) for file in self._files])
            + self._absent
        )

    def _catch_up(self) -> None:
        for file in self._files:  # grows during iteration
            if not file.wants_whole_log:
                file.catch_up(self._events)

    def _enqueue(self, name: str) -> None:
        if name in self._asked:
            return
        self._asked.add(name)
        try:
            self._files.append(_FileCheck(self._rules.files(name), self._enqueue))
        except FileNotFoundError:
            self._absent.append(Failure(kind="absent", key=None, rule=f"there is a rule file {name}"))

    def _by_file(self) -> list[tuple[_FileCheck, list[Failure]]]:
        return [(file, file.failures) for file in self._files]

    @staticmethod
    def _without_overridden(by_file: list[tuple[_FileCheck, list[Failure]]]) -> list[Failure]:
        """Drop rules of a key that a later file overrides."""
        by_key: dict[str, list[Failure]] = {}
        final: list[Failure] = []
        for file, failures in by_file:
            for key in file.keys:
                by_key.pop(key, None)
            for failure in failures:
                stays = failure.kind in ("target", "end") or bool(_named_alternatives(failure.rule))
                if failure.key is None or stays:
                    final.append(failure)
                else:
                    by_key.setdefault(failure.key, []).append(failure)
        return [failure for listed in by_key.values() for failure in listed] + final


class IndexedList(list[Any]):
    """A list whose `in` takes constant time while it is only appended to."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self._index: set[Any] = set()
        self._indexed = 0

    def __contains__(self, item: object) -> bool:
        if self._indexed > len(self):
            self._index, self._indexed = set(), 0
        self._index.update(map(_hashable, self[self._indexed :]))
        self._indexed = len(self)
        return _hashable(item) in self._index


def _hashable(value: Any) -> Any:
    """A value of JSON as one that can be hashed and equals another exactly if the values do."""
    if isinstance(value, dict):
        return dict, frozenset((key, _hashable(item)) for key, item in value.items())
    return (list, tuple(map(_hashable, value))) if isinstance(value, list) else value


@dataclass(slots=True)
class _Logged:
    """Values of one key: their number, the first and the last, and True if one differs from the first."""

    count: int = 0
    first: Any = None
    last: Any = None
    differ: bool = False

    def add(self, value: Any) -> None:
        if not self.count:
            self.first = value
        self.count += 1
        self.last = value
        self.differ = self.differ or bool(value != self.first)


class _FileCheck:
    """Evaluation of one rule file: its shared state and its failures so far."""

    def __init__(self, file: RuleFile, enqueue: Callable[[str], None]) -> None:
        self.keys = file.keys
        self.failures: list[Failure] = []
        self.crash: str | None = None
        self.wants_whole_log = file.begin is not None and "loglines" in file.begin.co_names
        self._file = file
        known = {"enqueue_config": enqueue, "is_integer": _is_integer, "math": math, **OF_NUMBERS}
        self._state: dict[str, Any] = {"s": {}, **known}
        self._seen = 0
        self._logged = {key: _Logged() for key in file.keys}
        self._reached: set[str] = set()
        if file.begin is not None and not self.wants_whole_log:
            exec(file.begin, self._state)
            self._index_lists()

    def _index_lists(self) -> None:
        """Let `in` take constant time for lists of the state, to which lines of any number append."""
        state = self._state["s"]
        state.update({name: IndexedList(value) for name, value in state.items() if type(value) is list})

    def begin_whole(self, events: Events) -> None:
        """Run BEGIN code that reads the whole log, and may add lines of its own to it."""
        lines = [_line(event) for event in events]
        self.wants_whole_log = False
        self._seen = len(events)
        try:
            if self._file.begin is not None:
                exec(self._file.begin, self._state, {"loglines": lines})
        except Exception as error:
            self.failures.append(Failure(kind="end", key=None, rule=_said(error)))
        for line in lines:
            self._run(line)

    def catch_up(self, events: Events) -> None:
        """Run the lines added since the last call."""
        since, self._seen = self._seen, len(events)
        for event in events.of(*self.keys, since=since):
            self._run(_line(event))

    def _run(self, line: _Line) -> None:
        rule = self.keys.get(line.key)
        if rule is None:
            return
        state, failures = self._state, self.failures
        scope = {"ll": line, "v": line.value}
        logged = self._logged[line.key]
        logged.add(line.value["value"])
        first = logged.count == 1
        if first or not line.key.startswith(FIRST_ONE_ONLY):
            if rule.before is not None:
                failures += _execute(rule.before, line, state, scope)
            if rule.checks:
                failures += _failed(rule.checks, line, state, scope)
            if rule.lost_checks:
                lost = _failed(rule.lost_checks, line, state, scope)
                failures += [replace(failure, lost=True) for failure in lost]
            if rule.after is not None:
                failures += _execute(rule.after, line, state, scope)
        if first and rule.first_checks:
            failures += _failed(rule.first_checks, line, state, scope)
        if rule.at_least_one is not None and self._reaches(rule.at_least_one, scope):
            self._reached.add(line.key)

    def _reaches(self, target: Check, scope: dict[str, Any]) -> bool:
        try:
            return bool(eval(target.code, self._state, scope))
        except Exception as error:  # a value of the wrong type reaches no target
            self.crash = self.crash or _said(error)
            return False

    def finish(self) -> list[Failure]:
        """Failures after the last line: targets, counts, final checks."""
        targets = [
            Failure(
                kind="target",
                key=key,
                rule=_filled(rule.at_least_one.text, self._state["s"]),
                value=self._logged[key].last,
            )
            for key, rule in self.keys.items()
            if rule.at_least_one is not None and self._logged[key].count and key not in self._reached
        ]
        return targets + _counted(self.keys, self._logged) + self._ended()

    def _ended(self) -> list[Failure]:
        try:
            if self._file.end_before is not None:
                exec(self._file.end_before, self._state)
        except Exception as error:
            self.crash = self.crash or _said(error)
            return [Failure(kind="end", key=None, rule=_said(error))]
        try:
            broken = [item for item in self._file.end_checks if not eval(item.code, self._state)]
        except Exception as error:
            return [Failure(kind="end", key=None, rule=_said(error))]
        return [self._end_failure(item.text) for item in broken]

    def _end_failure(self, rule: str) -> Failure:
        """A final check refers to the values that the code of some key collected."""
        for key, of_key in self.keys.items():
            for name in of_key.after.co_consts if of_key.after else ():
                if isinstance(name, str) and f"s['{name}']" in rule:
                    return Failure(kind="end", key=key, rule=rule, value=self._state["s"].get(name))
        return Failure(kind="end", key=None, rule=rule)


def _line(event: Event) -> _Line:
    metadata = event.metadata
    if type(metadata) is OtherMetadata:
        metadata = metadata.raw
    value = {"value": event.value, "metadata": metadata}
    return _Line(event.time_ms, event.key, value, event.line, event.key)


def _execute(code: CodeType, line: _Line, state: dict[str, Any], scope: dict[str, Any]) -> Sequence[Failure]:
    try:
        exec(code, state, dict(scope))  # its assignments stay local
    except Exception as error:
        return (_broken(line, _said(error)),)
    return ()


def _failed(
    checks: Sequence[Check], line: _Line, state: dict[str, Any], scope: dict[str, Any]
) -> list[Failure]:
    failures = []
    for check in checks:
        try:
            passed = eval(check.code, state, scope)
        except Exception:
            passed = False  # a value of the wrong type satisfies no rule
        if not passed:
            expected = expected_numbers(check.text, state, line.value)
            failures.append(replace(_broken(line, _filled(check.text, state["s"])), expected=expected))
    return failures


def _filled(rule: str, known: Mapping[str, Any]) -> str:
    """A rule that compares a value with the state of earlier lines or of the file, with the state's values
    substituted."""
    return ast.unparse(_Filled(known).visit(ast.parse(rule, mode="eval"))) if "s['" in rule else rule


class _Filled(ast.NodeTransformer):
    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Substitute state only next to a value: alone it determines when a line may occur, not its value."""
        parts = [node.left, *node.comparators]
        if any("v['" in ast.unparse(part) for part in parts):
            node.left, *node.comparators = (self._value(part) for part in parts)
        return node

    def _value(self, node: ast.expr) -> ast.expr:
        if not isinstance(node, ast.Subscript) or not ast.unparse(node).startswith("s['"):
            return node
        try:
            value = eval(compile(ast.Expression(node), "rule", "eval"), {"s": self._known})
            if isinstance(value, (str, list)) and len(value) > LONGEST_FILLED:
                return node
            short = isinstance(value, (int, float, str, list)) and len(repr(value)) <= LONGEST_FILLED
            return ast.parse(repr(value), mode="eval").body if short else node
        except Exception:
            return node


def _broken(line: _Line, rule: str) -> Failure:
    return Failure(kind="check", key=line.key, rule=rule, line=line.lineno, value=line.value["value"])


def _counted(keys: Mapping[str, KeyRule], of_each: Mapping[str, _Logged]) -> list[Failure]:
    failures = []
    reported: set[frozenset[str]] = set()
    for key, rule in keys.items():
        requirement = rule.requirement
        if requirement is None or requirement == "OPTIONAL":
            continue
        logged = of_each[key]
        alternatives = frozenset({key, *_named_alternatives(requirement)})
        if requirement.startswith("AT_LEAST_ONE_OR"):
            missing = (
                not any(name in of_each and of_each[name].count for name in alternatives)
                and alternatives not in reported
            )
            reported.add(alternatives)
        elif requirement == "EXACTLY_ONE":
            missing = not logged.count or logged.differ
        elif requirement == "AT_LEAST_ONE":
            missing = not logged.count
        else:
            missing = logged.count < _least(requirement)
        if missing:
            failures.append(Failure(kind="count", key=key, rule=requirement, value=logged.count))
    return failures


def _named_alternatives(requirement: str) -> list[str]:
    if not requirement.startswith("AT_LEAST_ONE_OR("):
        return []
    return [name.strip() for name in requirement[len("AT_LEAST_ONE_OR(") : -1].split(",")]


def _least(requirement: str) -> int:
    """The number in `AT_LEAST(n)`."""
    return int(requirement[len("AT_LEAST(") : -1])


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _is_integer(value: float) -> bool:
    return abs(round(value) - value) < 0.00001
