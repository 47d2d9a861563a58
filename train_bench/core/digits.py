"""Digits of numbers in sentences that compare them: two different numbers never look equal."""

from __future__ import annotations

import math
from collections.abc import Collection

MOST_DIGITS = 17
"""Enough to tell any two floats apart."""


def distinct(*values: float, decimals: int = 2) -> tuple[str, ...]:
    """Format numbers with `decimals` decimals, or with as many more as tell different ones apart."""
    return _formatted(values, decimals, "f")


def significant(*values: float, digits: int = 4) -> tuple[str, ...]:
    """Format numbers with `digits` significant digits, or with as many more as tell different ones apart."""
    return _formatted(values, digits, "g")


def decimals_apart(*values: float | None, decimals: int = 2) -> int:
    """Number of decimals, at least `decimals`, that tells different numbers of a column apart; None is left out."""
    known = [value for value in values if value is not None]
    return _enough(known, decimals, "f") or MOST_DIGITS


def minutes_in_digits(value: float, *, smallest: float | None = None) -> str:
    """Minutes with four decimals; of less than 0.01, with as many as give three digits, of the `smallest` of a column
    if it is given."""
    least = abs(value if smallest is None else smallest)
    decimals = 2 - math.floor(math.log10(least)) if 0 < least < 0.01 else 4
    return f"{value:.{min(decimals, MOST_DIGITS)}f}"


def _formatted(values: tuple[float, ...], least: int, kind: str) -> tuple[str, ...]:
    digits = _enough(values, least, kind)
    return tuple(repr(value) if digits is None else f"{value:.{digits}{kind}}" for value in values)


def _enough(values: Collection[float], least: int, kind: str) -> int | None:
    """Number of digits that tells different numbers apart; None where only all of them do."""
    different = {*values}
    for digits in range(least, MOST_DIGITS + 1):
        if len({f"{value:.{digits}{kind}}" for value in different}) == len(different):
            return digits
    return None
