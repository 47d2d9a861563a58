"""Keys that a round allows a benchmark to log, in words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from train_bench.errors import RequestError
from train_bench.rules.describe_rule import in_words, in_words_of_count
from train_bench.rules.fixed_values import fixed_in_words
from train_bench.rules.rulefile import KeyRule, RuleFile
from train_bench.rules.ruleset import BenchmarkRules

CLOSED, OPEN = DIVISIONS = ("closed", "open")

STATUS = {
    "onprem": "Available on-premise",
    "cloud": "Available cloud",
    "research": "Research, Development, or Internal (RDI)",
    "preview": "Preview",
}
"""`submission_status` of a log, and the `status` of a system description, in the words of later rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedKey:
    """One key: its number of occurrences, its allowed values, and its rule file. `when` is the condition of the file
    (`opt_name lars`)."""

    key: str
    occurs: str
    constraints: tuple[str, ...]
    file: str
    when: str | None


def allowed_keys(rules: BenchmarkRules, division: str) -> tuple[AllowedKey, ...]:
    """Every key in the rule files of a benchmark and division; a later file's rule of a key replaces an earlier
    one's."""
    if division not in DIVISIONS:
        raise RequestError(f"There is no division '{division}'; known: {', '.join(DIVISIONS)}.")
    keys: dict[tuple[str, str | None], AllowedKey] = {}
    for name, when, file in _files(rules, division):
        for key, rule in file.keys.items():
            keys.pop((key, None), None)
            keys[key, when] = AllowedKey(
                key=key, occurs=_occurs(rule), constraints=_constraints(rule), file=name, when=when
            )
    fixed = fixed_in_words(rules) if division == CLOSED else {}
    return tuple(
        replace(key, constraints=(*key.constraints, fixed[key.key])) if key.key in fixed else key
        for key in keys.values()
    )


def _files(rules: BenchmarkRules, division: str) -> Iterator[tuple[str, str | None, RuleFile]]:
    """The rule files of the benchmark's logs, each with its condition."""
    queue: list[tuple[str, str | None]] = [(rules.start, None)]
    for name, when in queue:  # grows during iteration
        try:
            file = rules.files(name)
        except FileNotFoundError:
            continue
        yield name.rpartition("/")[2], when, file
        for key, rule in file.keys.items():
            if rule.after is None or "enqueue_config" not in rule.after.co_names:
                continue
            fixed = {"submission_division": division, "submission_benchmark": rules.name}.get(key)
            for value in [fixed] if fixed else _choices(rule):
                chosen = when if fixed else f"{key} {value}"
                queue += [(enqueued, chosen) for enqueued in _enqueued(rule, value)]


def _enqueued(rule: KeyRule, value: str) -> list[str]:
    names: list[str] = []
    if rule.after is not None:
        exec(rule.after, {"s": {}, "enqueue_config": names.append, "v": {"value": value, "metadata": {}}})
    return names


def _choices(rule: KeyRule) -> list[str]:
    """The values of `v['value'] in [...]`."""
    for check in rule.checks:
        for node in ast.walk(ast.parse(check.text, mode="eval")):
            if isinstance(node, (ast.List, ast.Tuple)):
                return [str(item.value) for item in node.elts if isinstance(item, ast.Constant)]
    return []


def _occurs(rule: KeyRule) -> str:
    return in_words_of_count(rule.requirement) if rule.requirement else "may be logged"


def _constraints(rule: KeyRule) -> tuple[str, ...]:
    checks = [in_words(check.text) for check in (*rule.lost_checks, *rule.checks)]
    first = [f"the first: {in_words(check.text)}" for check in rule.first_checks]
    once = [f"at least once: {in_words(rule.at_least_one.text)}"] if rule.at_least_one else []
    return (*checks, *first, *once)
