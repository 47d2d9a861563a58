"""Two-sample tests: Kolmogorov-Smirnov, equal means, sign test, with Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

LEVEL = 1e-3
"""Family-wise error rate of all tests together."""


def two_samples(one: np.ndarray, other: np.ndarray) -> float:
    """p-value of the two-sample Kolmogorov-Smirnov test, by its large-sample limit."""
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
    """p-value of equal means of two samples of about twenty or more, by the normal distribution of their difference;
    constant samples are equal or not."""
    error = math.sqrt(float(one.var(ddof=1)) / len(one) + float(other.var(ddof=1)) / len(other))
    apart = abs(float(one.mean() - other.mean()))
    if apart <= 1e-6 * abs(float(one.mean())):
        return 1.0
    # With few samples the normal distribution rejects too often; a t of as many less 2 is wider by about this.
    degrees = max(1.0, len(one) + len(other) - 4.0)
    return math.erfc(apart / error * (1 - 1 / degrees) / math.sqrt(2)) if error > 0 else 0.0


def places(one: np.ndarray, other: np.ndarray) -> float:
    """Sign test: p-value of the larger row in `one` being the larger in `other`, too, for half of the samples or more,
    by the normal distribution. Both are (2, samples); rows that are equal within 1e-6 of their size do not count."""
    apart = [rows[0] - rows[1] for rows in (one, other)]
    decided = [
        np.abs(gap) > 1e-6 * np.abs(rows).max(axis=0) for gap, rows in zip(apart, (one, other), strict=True)
    ]
    counted = decided[0] & decided[1]
    count, against = int(counted.sum()), int((counted & (apart[0] * apart[1] < 0)).sum())
    return 0.5 * math.erfc((against - 0.5 - count / 2) / math.sqrt(count / 2)) if count else 1.0


def rejected(tests: Mapping[str, float]) -> list[str]:
    """Tests that reject by Holm's correction, in their order."""
    found = set()
    for number, name in enumerate(sorted(tests, key=lambda name: tests[name])):
        if tests[name] * (len(tests) - number) >= LEVEL:
            break
        found.add(name)
    return [name for name in tests if name in found]
