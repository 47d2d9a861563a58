"""Whether two samples are of one distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

LEVEL = 1e-3
"""How often one of all tests together may reject equal distributions."""


def two_samples(one: np.ndarray, other: np.ndarray) -> float:
    """p of the test of Kolmogorov and Smirnov, by its limit for large samples."""
    a, b = np.sort(one, axis=None), np.sort(other, axis=None)
    at = np.concatenate([a, b])
    apart = np.abs(
        np.searchsorted(a, at, side="right") / len(a) - np.searchsorted(b, at, side="right") / len(b)
    ).max()
    size = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    scaled = (size + 0.12 + 0.11 / size) * float(apart)
    if scaled < 0.2:
        return 1.0
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return float(min(1.0, max(0.0, sum(terms))))


def means(one: np.ndarray, other: np.ndarray) -> float:
    """p of equal means of two samples of about twenty or more, by the normal distribution of their difference; samples
    that do not vary are equal or they are not."""
    error = math.sqrt(float(one.var(ddof=1)) / len(one) + float(other.var(ddof=1)) / len(other))
    apart = abs(float(one.mean() - other.mean()))
    if apart <= 1e-6 * abs(float(one.mean())):
        return 1.0
    # With few samples the normal distribution rejects too often; a t of as many less 2 is wider by about this.
    degrees = max(1.0, len(one) + len(other) - 4.0)
    return math.erfc(apart / error * (1 - 1 / degrees) / math.sqrt(2)) if error > 0 else 0.0


def places(one: np.ndarray, other: np.ndarray) -> float:
    """p of the row that is larger in `one` being so in `other`, too, for half of the samples or more: the sign test, by
    the normal distribution. Both are (2, samples); rows that are equal within 1e-6 of their size do not count."""
    apart = [rows[0] - rows[1] for rows in (one, other)]
    told = [
        np.abs(gap) > 1e-6 * np.abs(rows).max(axis=0) for gap, rows in zip(apart, (one, other), strict=True)
    ]
    counted = told[0] & told[1]
    count, against = int(counted.sum()), int((counted & (apart[0] * apart[1] < 0)).sum())
    return 0.5 * math.erfc((against - 0.5 - count / 2) / math.sqrt(count / 2)) if count else 1.0


def rejected(tests: Mapping[str, float]) -> list[str]:
    """The tests that reject by Holm's correction, in their order."""
    found = set()
    for number, name in enumerate(sorted(tests, key=lambda name: tests[name])):
        if tests[name] * (len(tests) - number) >= LEVEL:
            break
        found.add(name)
    return [name for name in tests if name in found]
