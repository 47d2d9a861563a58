"""Error and power of the referee of contests, simulated: `python bench/studies/contests.py [CONTESTS]`.

Challengers without any effect come one after the other; logarithms of paired times differ by normal noise. A one-run
rule keeps whatever was faster once. The tests are written anew here, from levels of the package: a pair of
runs after the other, exact one-sided t-tests at the increments of the level, and an end for futility.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.special import stdtr, stdtrit

from train_bench.compare.alpha_spending import increments, nominal_levels
from train_bench.referee.error_budget import level_of

ERROR, CHALLENGERS, PAIRS, NOISE = 0.01, 200, 20, 0.01
"""Error budget, challengers of a contest, pairs of a challenge at most, and deviation of a pair's difference."""

FUTILITY = 0.8 * 0.05


def challenge(
    gain: float, level: float, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Which of `count` challenges made a record, and the runs that each spent."""
    differences = rng.normal(np.log1p(gain), NOISE, (count, PAIRS))
    open_ = np.ones(count, bool)
    record, runs = np.zeros(count, bool), np.full(count, 2 * PAIRS)
    below = nominal_levels(FUTILITY, PAIRS)
    for number, (one, other) in enumerate(zip(increments(level, PAIRS), below, strict=True), start=3):
        first = differences[:, :number]
        statistic = first.mean(1) / (first.std(1, ddof=1) / np.sqrt(number))
        shown = stdtr(number - 1, -statistic) < one
        futile = statistic < -stdtrit(number - 1, 1 - other)
        ends = open_ & (shown | futile)
        record |= ends & shown
        runs[ends] = 2 * number
        open_ &= ~ends
    return record, runs


def without_effect(contests: int, rng: np.random.Generator) -> tuple[float, float]:
    """Share of contests with a false record, and runs of a challenge. Levels are those without an earlier record: what
    comes after a false one does not count again."""
    false, spent = np.zeros(contests, bool), 0.0
    for number in range(1, CHALLENGERS + 1):
        record, runs = challenge(0.0, level_of([], number, ERROR), contests, rng)
        false |= record
        spent += runs.mean() / CHALLENGERS
    return false.mean(), spent


def one_run(contests: int, rng: np.random.Generator) -> tuple[float, float]:
    """Share of contests in which a rule that keeps the faster run has a record, and their number."""
    times = rng.normal(0.0, NOISE / np.sqrt(2), (contests, CHALLENGERS + 1))
    best = np.minimum.accumulate(times, 1)
    records = (times[:, 1:] < best[:, :-1]).sum(1)
    return (records > 0).mean(), records.mean()


def with_gains(contests: int, rng: np.random.Generator) -> tuple[float, float]:
    """Marginal false discovery rate and records of a contest where one challenger in ten is 5 % faster, by p-values of
    all pairs."""
    false = records = 0
    for _ in range(contests):
        real = rng.random(CHALLENGERS) < 0.1
        differences = rng.normal(np.where(real, np.log1p(0.05), 0.0)[:, None], NOISE, (CHALLENGERS, PAIRS))
        statistic = differences.mean(1) / (differences.std(1, ddof=1) / np.sqrt(PAIRS))
        made: list[int] = []
        for number, p in enumerate(stdtr(PAIRS - 1, -statistic), start=1):
            if p < level_of(made, number, ERROR):
                made.append(number)
                false += not real[number - 1]
        records += len(made)
    return false / (records + contests), records / contests


def main() -> None:
    """Print all of it."""
    contests = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rng = np.random.default_rng(1)
    false, runs = without_effect(contests, rng)
    print(f"{contests} contests of {CHALLENGERS} challengers without effect, error budget {ERROR:g}:")
    print(f"  referee: a false record in {false:.2%} of contests, {runs:.1f} runs a challenge")
    kept, records = one_run(contests, rng)
    print(f"  one-run rule: in {kept:.2%} of contests, {records:.1f} of them on average")
    print(f"power at a deviation of {NOISE:.1%} of a pair's difference, at most {PAIRS} pairs:")
    for number in (1, 10, 100):
        level = level_of([], number, ERROR)
        cells = []
        for gain in (0.01, 0.02, 0.05):
            record, runs_of = challenge(gain, level, 2000, rng)
            cells.append(f"gain {gain:.0%}: {record.mean():.1%} in {runs_of.mean():.1f} runs")
        print(f"  challenger {number} (level {level:.2g}): {'; '.join(cells)}")
    rate, records = with_gains(max(1, contests // 10), rng)
    print(
        f"one in ten is 5 % faster: {records:.1f} records a contest, marginal false discovery rate {rate:.3%}"
    )


if __name__ == "__main__":
    main()
