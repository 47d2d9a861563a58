"""Numbers of untrusted JSON."""

from __future__ import annotations

from typing import Any

LARGEST_NUMBER = 1e40
"""No seed and no count of samples has as many digits, and products and sums of a few such numbers stay finite."""


def finite_number(value: Any, *, below: float = LARGEST_NUMBER) -> float | None:
    """A number of absolute value `below` that; None for anything else, truth values, NaN and infinity included."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return value if abs(value) < below else None
