"""Digits of numbers in sentences that compare them: two different numbers never look equal."""

from __future__ import annotations

MOST_DECIMALS = 17


def distinct(*values: float, decimals: int = 2) -> tuple[str, ...]:
    """Format numbers with `decimals` decimals, or with as many more as tell different ones apart."""
    for digits in range(decimals, MOST_DECIMALS):
        texts = tuple(f"{value:.{digits}f}" for value in values)
        if len({*texts}) == len({*values}):
            return texts
    return tuple(map(repr, values))


def significant(*values: float, digits: int = 4) -> tuple[str, ...]:
    """Format numbers with `digits` significant digits, or with as many more as tell different ones apart."""
    for enough in range(digits, MOST_DECIMALS + 1):
        texts = tuple(f"{value:.{enough}g}" for value in values)
        if len({*texts}) == len({*values}):
            return texts
    return tuple(map(repr, values))
