"""Early stopping of LoadGen: a percentile of few queries is held with 99 % confidence (loadgen/early_stopping.cc).

A system whose true share of slow queries is 1 - `percentile` has at most `slow` among `queries` with a probability that
the binomial distribution gives. Below 1 % that system is excluded.
"""

from __future__ import annotations

from scipy import stats

CONFIDENCE = 0.99


def holds(queries: int, slow: int, percentile: float) -> bool:
    """True if `slow` of `queries` above a latency show that `percentile` of all are below it."""
    return bool(stats.binom.cdf(slow, queries, 1 - percentile) < 1 - CONFIDENCE)


def largest_slow(queries: int, percentile: float) -> int:
    """Largest number of slow queries for which `holds` is true; -1 if not even none suffices."""
    slow = int(stats.binom.ppf(1 - CONFIDENCE, queries, 1 - percentile))
    while slow >= 0 and not holds(queries, slow, percentile):
        slow -= 1
    return slow


def fewest_queries(slow: int, percentile: float) -> int:
    """Smallest number of queries for which `holds` is true with `slow` of them: 44 for none at the 90th percentile."""
    low, high = slow, 2 * (slow + 1)
    while not holds(high, slow, percentile):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle, slow, percentile) else (middle, high)
    return high


def estimate_position(queries: int, percentile: float) -> int | None:
    """Position among ascending latencies of the percentile that LoadGen reports: as many slow queries as `largest_slow`
    lie at or above it. None for fewer queries than an estimate needs (64 at the 90th percentile, 662 at the 99th)."""
    slow = largest_slow(queries, percentile)
    return queries - slow if slow >= 1 else None
