"""Value constraints of `rules.yaml` -> expressions of the official rule files.

above, at_least, below, at_most    bounds of a number
integer: true                      a whole number
multiple_of: STEP                  a whole multiple of a number
power_of_two_times: UNIT           a number times a power of two
exactly                            one value, which may be a list
one_of                             a list of values
each                               a list whose items these words (but exactly) hold for
length, ascending: true            how long a list is, and that no item is less than the one before it
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from train_bench.errors import RequestError

LOWER = {"above": "<", "at_least": "<="}
UPPER = {"below": "<", "at_most": "<="}
OF_NUMBERS = {*LOWER, *UPPER, "integer", "multiple_of", "power_of_two_times"}
OF_LISTS = {"each", "length", "ascending"}
WORDS = {*OF_NUMBERS, *OF_LISTS, "exactly", "one_of"}


def expressions(bounds: object, where: str, subject: str = "v['value']") -> list[str]:
    """Conditions on `subject`. Raises `RequestError`, beginning with `where`, for a word or value that is not allowed,
    and for words that contradict each other."""
    allowed = WORDS if subject == "v['value']" else OF_NUMBERS | {"one_of"}
    if not isinstance(bounds, Mapping) or not bounds or set(bounds) - allowed:
        raise refused(where, bounds, f"one or more of {', '.join(sorted(allowed))}, each with its value")
    alone = set(bounds) & {"exactly", "one_of"}
    if (alone and len(bounds) > 1) or (set(bounds) & OF_LISTS and set(bounds) - OF_LISTS):
        raise refused(
            where,
            bounds,
            "exactly and one_of alone, each, length and ascending without other words beside them",
        )
    if alone:
        return [_of_values(bounds, where, subject)]
    if set(bounds) & OF_LISTS:
        return _of_list(bounds, where, subject)
    return [*_between(bounds, where, subject), *_steps(bounds, where, subject)]


def refused(where: str, value: object, allowed: str) -> RequestError:
    """The error for a value of a file that is not allowed."""
    return RequestError(f"{where} is {str(value)[:200]!r}; allowed: {allowed}.")


def number(value: object, where: str, *, least: float = -math.inf) -> float:
    """A finite number, unchanged. Raises `RequestError` for anything else, and for less than `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300:
        raise refused(where, value, "a number (1.0e-9, not 1e-9, which YAML reads as text)")
    if value < least:
        raise refused(where, value, f"{least:g} or more")
    return value


def literal(value: object) -> str:
    """A value of a file as an expression. Lists, texts, numbers and truth values only."""
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float) and math.isinf(value):
        return "float('inf')" if value > 0 else "-float('inf')"
    return repr(value)


def _between(bounds: Mapping[str, Any], where: str, subject: str) -> list[str]:
    lower, upper = [word for word in LOWER if word in bounds], [word for word in UPPER if word in bounds]
    if len(lower) > 1 or len(upper) > 1:
        raise refused(where, dict(bounds), "one of above and at_least, one of below and at_most")
    limits = {word: number(bounds[word], f"{where}.{word}") for word in (*lower, *upper)}
    if lower and upper:
        low, high = limits[lower[0]], limits[upper[0]]
        if low > high or (low == high and ("above" in bounds or "below" in bounds)):
            raise refused(where, dict(bounds), "bounds between which there is a number")
        return [f"{low!r} {LOWER[lower[0]]} {subject} {UPPER[upper[0]]} {high!r}"]
    return [
        f"{subject} {(LOWER | UPPER)[word].replace('<', '>' if word in LOWER else '<')} {limit!r}"
        for word, limit in limits.items()
    ]


def _steps(bounds: Mapping[str, Any], where: str, subject: str) -> list[str]:
    expressions_of_steps = []
    if "integer" in bounds:
        _only_true(bounds, "integer", where)
        expressions_of_steps.append(f"is_integer({subject})")
    for word, form in (("multiple_of", "{} / {!r}"), ("power_of_two_times", "math.log2({} / {!r})")):
        if word in bounds:
            step = number(bounds[word], f"{where}.{word}")
            if step <= 0:
                raise refused(f"{where}.{word}", step, "a number above 0")
            expressions_of_steps.append(f"is_integer({form.format(subject, step)})")
    return expressions_of_steps


def _of_values(bounds: Mapping[str, Any], where: str, subject: str) -> str:
    if "exactly" in bounds:
        value = bounds["exactly"]
        for item in value if isinstance(value, list) else [value]:
            _refuse_no_value(item, f"{where}.exactly")
        return f"{subject} == {literal(value)}"
    values = bounds["one_of"]
    if not isinstance(values, list) or not values:
        raise refused(f"{where}.one_of", values, "a list of values")
    for item in values:
        _refuse_no_value(item, f"{where}.one_of")
    return f"{subject} in {literal(values)}"


def _refuse_no_value(value: object, where: str) -> None:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return
        raise refused(
            where, value, "a number as YAML reads it (1.0e-9, not 1e-9), or a text that is not a number"
        )
    if not isinstance(value, (bool, int, float)) or value != value:
        raise refused(where, value, "a text, a number, true or false, or for exactly a list of these")


def _of_list(bounds: Mapping[str, Any], where: str, subject: str) -> list[str]:
    of_list = []
    if "length" in bounds:
        length = bounds["length"]
        if type(length) is not int or length < 0:
            raise refused(f"{where}.length", length, "a whole number of 0 or more")
        of_list.append(f"len({subject}) == {length}")
    if "each" in bounds:
        of_items = expressions(bounds["each"], f"{where}.each", "item")
        of_list += [f"all({expression} for item in {subject})" for expression in of_items]
    if "ascending" in bounds:
        _only_true(bounds, "ascending", where)
        of_list.append(f"{subject} == sorted({subject})")
    return of_list


def _only_true(bounds: Mapping[str, Any], word: str, where: str) -> None:
    if bounds[word] is not True:
        raise refused(f"{where}.{word}", bounds[word], "true; leave the word out otherwise")
