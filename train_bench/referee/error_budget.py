"""Error budget of a sequence of tests: LORD++ (Ramdas, Yang, Wainwright and Jordan 2017, after Javanmard and Montanari
2018), an alpha-investing rule.

Test t is at level gamma_t W + (error - W) gamma_(t - r1) + error * (gamma_(t - r2) + ...), where r1, r2, ... are the
earlier tests that rejected: each record earns error for those that come after it, and nothing else does. With levels
that only the past decides, and p-values that are valid given the past (fresh runs for each test), the marginal false
discovery rate is at most `error` after any number of tests: E[false records] / (E[records] + 1). Where no challenger
is better, every record is false and the rate bounds the probability of any: false records in at most that share of
contests. With independent p-values the false discovery rate itself is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

SCALE = 0.079
"""Makes the sum of `gamma` over all tests 0.999: the sum without it is 12.645, of which numbers above 5e7 are 4.72 (by
its integral)."""

START_SHARE = 0.5
"""Share of the error that the first tests have before any record."""


def gamma(number: int) -> float:
    """Share of the error for the test so many places behind a record, from 1; decreasing, with a sum below 1."""
    return SCALE * math.log(max(number, 2)) / (number * math.exp(math.sqrt(math.log(number))))


def level_of(records: Sequence[int], number: int, error: float) -> float:
    """Level of test `number`, from 1, after these tests made a record."""
    start = START_SHARE * error
    level = gamma(number) * start
    for place, record in enumerate(sorted(one for one in records if one < number)):
        level += gamma(number - record) * (error - start if place == 0 else error)
    return level
