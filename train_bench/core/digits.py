"""Digits of numbers in sentences that compare them: two different numbers never look equal."""

from __future__ import annotations

MOST_DIGITS = 17
"""Enough to tell any two floats apart."""


def distinct(*values: float, decimals: int = 2) -> tuple[str, ...]:
    """Format numbers with `decimals` decimals, or with as many more as tell different ones apart."""
    return _formatted(values, decimals, "f")


def significant(*values: float, digits: int = 4) -> tuple[str, ...]:
    """Format numbers with `digits` significant digits, or with as many more as tell different ones apart."""
    return _formatted(values, digits, "g")


def _formatted(values: tuple[float, ...], least: int, kind: str) -> tuple[str, ...]:
    for digits in range(least, MOST_DIGITS + 1):
        texts = tuple(f"{value:.{digits}{kind}}" for value in values)
        if len({*texts}) == len({*values}):
            return texts
    return tuple(map(repr, values))
