"""Exact tests of times that count runs without one: a run that failed is a time longer than all others.

The ratio of times is that of runs that reached the target. A side that fails often keeps its lucky runs, so these alone
say nothing on which side is faster. Ranks do: failures are tied at infinity. Both tests are permutation tests with
their exact distribution, ties included (Mann and Whitney 1947, Wilcoxon 1945, with midranks).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTest:
    """One-sided p-values: `longer` of the hypothesis that b does not take longer than a, `shorter` the other way
    round."""

    longer: float
    shorter: float

    @property
    def p(self) -> float:
        """Two-sided p-value."""
        return min(1.0, 2 * min(self.longer, self.shorter))


def rank_test(a: Sequence[float], b: Sequence[float], *, paired: bool) -> RankTest:
    """Test times or their logarithms; infinite ones are failures. Pairs of which both failed are ties."""
    if paired:
        return _signed_ranks([_difference(one, other) for one, other in zip(a, b, strict=True)])
    ranks = _doubled_midranks([*a, *b])
    return _tails(_sums_of(ranks, len(b)), sum(ranks[len(a) :]))


def failure_probability(a: Sequence[float], b: Sequence[float], *, paired: bool) -> float:
    """Two-sided p-value of equal shares of failures: Fisher's exact test; of pairs, McNemar's exact test."""
    failed = [math.isinf(value) for value in a], [math.isinf(value) for value in b]
    if paired:
        only_b = sum(other and not one for one, other in zip(*failed, strict=True))
        only_a = sum(one and not other for one, other in zip(*failed, strict=True))
        discordant = only_a + only_b
        tail = sum(math.comb(discordant, count) for count in range(min(only_a, only_b) + 1))
        return min(1.0, tail / 2.0 ** (discordant - 1))
    in_all, of_b = sum(failed[0]) + sum(failed[1]), sum(failed[1])

    def ways(count: int) -> int:
        return math.comb(len(b), count) * math.comb(len(a), in_all - count)

    possible = range(max(0, in_all - len(a)), min(in_all, len(b)) + 1)
    as_rare = sum(one for count in possible if (one := ways(count)) <= ways(of_b))
    return as_rare / math.comb(len(a) + len(b), in_all)


def more_failures_probability(a: Sequence[float], b: Sequence[float], *, paired: bool) -> float:
    """One-sided p-value of b failing no more often than a, by the same tests."""
    failed = [math.isinf(value) for value in a], [math.isinf(value) for value in b]
    if paired:
        only_b = sum(other and not one for one, other in zip(*failed, strict=True))
        discordant = only_b + sum(one and not other for one, other in zip(*failed, strict=True))
        return float(
            sum(math.comb(discordant, count) for count in range(only_b, discordant + 1)) / 2.0**discordant
        )
    in_all, of_b = sum(failed[0]) + sum(failed[1]), sum(failed[1])
    ways = sum(
        math.comb(len(b), count) * math.comb(len(a), in_all - count)
        for count in range(of_b, min(in_all, len(b)) + 1)
    )
    return ways / math.comb(len(a) + len(b), in_all)


def _difference(a: float, b: float) -> float:
    return 0.0 if a == b else b - a


def _signed_ranks(differences: Sequence[float]) -> RankTest:
    unequal = [difference for difference in differences if difference != 0]
    ranks = _doubled_midranks([abs(difference) for difference in unequal])
    observed = sum(rank for rank, difference in zip(ranks, unequal, strict=True) if difference > 0)
    import numpy as np

    ways: Any = np.zeros(sum(ranks) + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] = ways[rank:] + ways[: len(ways) - rank]
        ways /= 2
    return _tails(ways, observed)


def _sums_of(ranks: Sequence[int], count: int) -> Any:
    """Distribution of the sum of `count` of the ranks, drawn without replacement."""
    import numpy as np

    ways: Any = np.zeros((count + 1, sum(ranks) + 1))
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    return ways[count] / ways[count].sum()


def _tails(shares: Any, observed: int) -> RankTest:
    return RankTest(
        longer=min(1.0, float(shares[observed:].sum())), shorter=min(1.0, float(shares[: observed + 1].sum()))
    )


def _doubled_midranks(values: Sequence[float]) -> list[int]:
    """Ranks from 1, doubled, so that the mean rank of ties is a whole number."""
    ordered = sorted(values)
    places: dict[float, list[int]] = {}
    for place, value in enumerate(ordered, start=1):
        places.setdefault(value, []).append(place)
    return [places[value][0] + places[value][-1] for value in values]
