"""Values that the text of the training rules fixes and the rule files leave open: `fixed` in `errata.yaml`.

An allowed value is a number, or an expression of other keys of the log: `0.1 * opt_base_learning_rate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from train_bench.core.finite_number import finite_number
from train_bench.rules.errata import Erratum
from train_bench.rules.ruleset import BenchmarkRules

NEAR = 1e-6
"""Relative difference below which values are equal: a program may multiply in another order."""

LARGEST_NUMBER = 1e300
"""Larger numbers do not count as numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A value that is none of the allowed ones, which `allowed` has in words."""

    key: str
    value: Any
    allowed: str
    section: str

    def __str__(self) -> str:
        return (
            f"{self.key} is {self.value!r:.80}; the text of the rules allows only {self.allowed} ({self.section}). The "
            "official checker does not compare it."
        )


def departures(rules: BenchmarkRules, values: Mapping[str, Any]) -> Iterator[Departure]:
    """Values of a log or a plan, by their mllog keys, that depart from the text of the rules. Where an allowed value
    follows from a key that is missing, there is nothing to compare with."""
    for erratum, key, allowed in _fixed(rules):
        due = [_value(expression, values) for expression in allowed]
        if key in values and None not in due and not _is_one_of(values[key], due):
            yield Departure(
                key=key,
                value=values[key],
                allowed=_in_words(allowed, due),
                section=section_of(erratum),
            )


def fixed_in_words(rules: BenchmarkRules) -> dict[str, str]:
    """The allowed values by key, for `rules`."""
    return {
        key: f"{' or '.join(allowed)} (text of the rules; the official checker does not compare it)"
        for _, key, allowed in _fixed(rules)
    }


def section_of(erratum: Erratum) -> str:
    """The section of the training rules that fixes a value."""
    return f'training rules, "{erratum.section}"'


def _fixed(rules: BenchmarkRules) -> Iterator[tuple[Erratum, str, Sequence[str]]]:
    for erratum in rules.errata:
        for key, allowed in erratum.fixed:
            yield erratum, key, allowed


def _in_words(allowed: Sequence[str], due: Sequence[float | None]) -> str:
    """`8e-07`, `0.1 * opt_base_learning_rate = 4e-05`."""
    return " or ".join(
        f"{value:.6g}" if _is_number(expression) else f"{expression} = {value:.6g}"
        for expression, value in zip(allowed, due, strict=True)
    )


def _is_number(expression: str) -> bool:
    try:
        float(expression)
    except ValueError:
        return False
    return True


def _value(expression: str, values: Mapping[str, Any]) -> float | None:
    """None if a key is missing or no number."""
    numbers = {
        key: value for key, value in values.items() if finite_number(value, below=LARGEST_NUMBER) is not None
    }
    try:
        return float(eval(_code(expression), {"__builtins__": {}, "ceil": math.ceil}, numbers))
    except (ArithmeticError, NameError, ValueError):
        return None


@cache
def _code(expression: str) -> CodeType:
    return compile(expression, "errata.yaml", "eval")


def _is_one_of(value: Any, due: Sequence[float | None]) -> bool:
    number = finite_number(value, below=LARGEST_NUMBER)
    return number is not None and any(
        one is not None and math.isclose(number, one, rel_tol=NEAR) for one in due
    )
