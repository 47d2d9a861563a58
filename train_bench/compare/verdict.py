"""Verdict of a comparison: what `compare`, its gate, its table, its page and live pairs say, decided in one place.

Faster is only said where the ratio of the times of runs that reached the target is significant, and, where sides fail
in different numbers, a rank test that counts failures agrees. A side that fails significantly more often reaches the
target less often, and is not faster. Two campaigns that ran one after the other on one machine are undecided unless its
history shows the variance between campaigns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from train_bench.compare.censored import (
    RankTest,
    failure_probability,
    more_failures_probability,
    rank_test,
)
from train_bench.compare.design import NOT_ALTERNATED, Design
from train_bench.judge.statistics import ALPHA

FASTER, SLOWER, LESS_OFTEN, MORE_OFTEN, UNDECIDED = (
    "faster",
    "slower",
    "less often",
    "more often",
    "undecided",
)
"""Words for b against a; less and more often is how it reaches the target."""

INTERVAL, FAILURES, DRIFT = "interval", "failures", "not alternated"
"""Reasons for undecided: the interval includes 1, failures differ and ranks do not agree, or drift of the machine is
not in the interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Logarithms of times of all runs of both sides, infinite where one failed; `paired` by place."""

    a: Sequence[float]
    b: Sequence[float]
    paired: bool

    @property
    def failed(self) -> tuple[int, int]:
        """Failures of both sides."""
        return sum(map(math.isinf, self.a)), sum(map(math.isinf, self.b))

    def differ(self) -> bool:
        """True if the shares of failures differ."""
        return self.failed[0] * len(self.b) != self.failed[1] * len(self.a)

    def ranks(self, limit: float = 0.0) -> RankTest:
        """Rank test of b against a, whose times are longer by the factor 1 + `limit`."""
        return rank_test([one + math.log1p(limit) for one in self.a], self.b, paired=self.paired)

    def failure_p(self) -> float:
        """Two-sided p-value of equal shares of failures."""
        return failure_probability(self.a, self.b, paired=self.paired)

    def more_failures_p(self) -> float:
        """One-sided p-value of b failing no more often than a."""
        return more_failures_probability(self.a, self.b, paired=self.paired)

    def fails_more(self) -> int:
        """1 if b fails significantly more often than a, -1 if a does, else 0."""
        if not self.differ() or self.failure_p() > ALPHA:
            return 0
        return 1 if self.failed[1] * len(self.a) > self.failed[0] * len(self.b) else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`word` for b against a, the `reason` where it is undecided, and the two-sided p-values of the rank test that
    counts failures and of equal shares of failures; None where failures do not differ."""

    word: str
    reason: str | None = None
    rank_p: float | None = None
    failure_p: float | None = None


def decide(low: float, high: float, outcomes: Outcomes, *, decided: bool, design: Design) -> Verdict:
    """Verdict of a speed-up (time of a over that of b) between `low` and `high`, if it is `decided` by itself."""
    by_times = UNDECIDED if not decided else FASTER if low > 1 else SLOWER if high < 1 else UNDECIDED
    rank_p = failure_p = None
    reason = None
    if outcomes.differ():
        ranks, failure_p = outcomes.ranks(), outcomes.failure_p()
        rank_p = ranks.p
        by_ranks = UNDECIDED if rank_p > ALPHA else SLOWER if ranks.longer < ranks.shorter else FASTER
        more = outcomes.fails_more()
        if by_times != by_ranks or more == {FASTER: 1, SLOWER: -1}.get(by_times):
            reason = FAILURES if by_times != UNDECIDED else INTERVAL
            by_times = UNDECIDED
        if by_times == UNDECIDED and more:
            word = LESS_OFTEN if more == 1 else MORE_OFTEN
            return Verdict(word=word, rank_p=rank_p, failure_p=failure_p)
    if by_times != UNDECIDED and design.how == NOT_ALTERNATED:
        return Verdict(word=UNDECIDED, reason=DRIFT, rank_p=rank_p, failure_p=failure_p)
    if by_times == UNDECIDED:
        reason = reason or (DRIFT if design.how == NOT_ALTERNATED else INTERVAL)
    return Verdict(word=by_times, reason=reason, rank_p=rank_p, failure_p=failure_p)
