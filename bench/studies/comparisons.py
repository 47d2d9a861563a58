"""Coverage of the interval of a score, and false verdicts of comparisons, simulated.

    python bench/studies/comparisons.py [DRAWS]

Four tables, each as it was before decision 0223 and as it is:

score      coverage of the 95 % interval of a score of five runs, lowest and highest dropped, by the ratio of the
           training that the submission needs to that of the reference. Training is a whole number of epochs with a
           deviation of 15 %, speed varies by 2 %; only scores whose RCP verdict is pass count
few runs   false verdicts between equal sides of 2, 3 and 5 runs, whose times are multiples of an evaluation period
failures   verdicts "faster" for a side that is equal where it reaches the target and misses it in 60 % of runs
drift      false verdicts between equal campaigns of five runs on a machine whose speed wanders (a model: a random walk
           of 4 % for each run's time), one after the other, alternated, and by the history of eight campaigns
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from train_bench.compare import verdict as verdicts
from train_bench.compare.comparison import ratio_of
from train_bench.compare.design import ANY, drift_error
from train_bench.compare.verdict import Outcomes, decide
from train_bench.judge.rcp import PASS, RcpVerdict
from train_bench.judge.score import _interval
from train_bench.judge.statistics import olympic_interval

REFERENCE = 20.0
RNG = np.random.default_rng(223)


def olympic(values: Any) -> Any:
    """Olympic mean of each row of five."""
    return np.sort(values, axis=1)[:, 1:-1].mean(axis=1)


def epochs(ratio: float, size: tuple[int, int]) -> Any:
    """Whole numbers of epochs with mean `ratio` times that of the reference."""
    return np.ceil(ratio * REFERENCE * np.exp(RNG.normal(0, 0.15, size)) - 0.5)


def score_coverage(ratio: float, draws: int) -> tuple[float, float, float]:
    """Coverage before and now, and the share of scores with a factor above 1."""
    largest = epochs(ratio, (40_000, 5)), np.exp(RNG.normal(0, 0.02, (40_000, 5)))
    truth_epochs = float(olympic(largest[0]).mean())
    truth = float(olympic(largest[0] * largest[1]).mean()) * max(1.0, REFERENCE / truth_epochs)
    before = now = with_factor = counted = 0
    for convergences in epochs(ratio, (draws, 5)):
        times = convergences * np.exp(RNG.normal(0, 0.02, 5))
        mean = float(np.sort(convergences)[1:-1].mean())
        if mean < 0.7 * REFERENCE:
            continue
        counted += 1
        factor = max(1.0, REFERENCE / mean)
        with_factor += factor > 1
        low, high = olympic_interval(list(times), 1)
        before += low * factor <= truth <= high * factor
        rcp = RcpVerdict(verdict=PASS, message="", factor=factor, mean=REFERENCE, submission_mean=mean)
        low, high = _interval(list(times), 1, rcp, list(convergences), applied=True)
        now += low <= truth <= high
    return before / counted, now / counted, with_factor / counted


def few_runs(runs: int, likely: Sequence[float], draws: int) -> tuple[float, float]:
    """Share of false verdicts before and now; the last evaluation is the sixth, seventh, ... with these
    probabilities."""
    counts = RNG.choice(6 + np.arange(len(likely)), p=likely, size=(2, draws, runs))
    logs = np.log(counts * np.exp(RNG.normal(0, 0.002, counts.shape)))
    before = now = 0
    for a, b, of_a, of_b in zip(*logs, *counts, strict=True):
        before += ratio_of(list(a), list(b), paired=False).decided
        floors = [float(np.mean((1 / of) ** 2)) / 12 for of in (of_a, of_b)]
        now += runs > 2 and ratio_of(list(a), list(b), paired=False, floors=floors).decided
    return before / draws, now / draws


def failures(runs: int, faster: float, draws: int) -> tuple[float, float]:
    """Share of "faster" before and now for a side whose runs are shorter by a share, and of which 60 % miss the
    target."""
    before = now = 0
    for _ in range(draws):
        a = list(RNG.normal(0, 0.05, runs))
        b = [
            float(value) if reached else math.inf
            for value, reached in zip(RNG.normal(-faster, 0.05, runs), RNG.random(runs) > 0.6, strict=True)
        ]
        finite = [value for value in b if math.isfinite(value)]
        if len(finite) < 3:
            continue
        ratio = ratio_of(a, finite, paired=False)
        before += ratio.low > 1
        decided = decide(
            ratio.low, ratio.high, Outcomes(a=a, b=b, paired=False), decided=ratio.decided, design=ANY
        )
        now += decided.word == verdicts.FASTER
    return before / draws, now / draws


def drift(draws: int) -> dict[str, tuple[float, float]]:
    """False verdicts before and now by design."""
    found = {"one after the other": [0, 0], "by history": [0, 0], "alternated": [0, 0]}
    for _ in range(draws):
        walk = np.cumsum(RNG.normal(0, 0.04, 60)) + RNG.normal(0, 0.05, 60)
        campaigns = [list(walk[start : start + 5]) for start in range(0, 50, 5)]
        plain = ratio_of(campaigns[8], campaigns[9], paired=False).decided
        error = drift_error([campaigns[:8]], (5, 5))
        by_history = ratio_of(campaigns[8], campaigns[9], paired=False, drift=error).decided
        turns = [walk[50 + 2 * at : 52 + 2 * at][:: -1 if at % 2 else 1] for at in range(5)]
        taken = ratio_of([one[0] for one in turns], [one[1] for one in turns], paired=False).decided
        for name, before, now in (
            ("one after the other", plain, False),
            ("by history", plain, by_history),
            ("alternated", taken, taken),
        ):
            found[name][0] += before
            found[name][1] += now
    return {name: (before / draws, now / draws) for name, (before, now) in found.items()}


def main() -> None:
    """Print the tables."""
    draws = int(sys.argv[1]) if sys.argv[1:] else 4000
    print(f"{draws} draws a row\nscore: coverage          before      now   with factor")
    for ratio in (0.85, 0.9, 0.95, 1.0, 1.02, 1.05, 1.1, 1.2):
        before, now, shared = score_coverage(ratio, draws)
        print(f"{ratio:10.2f} {before:19.1%} {now:8.1%} {shared:13.1%}")
    print("few runs: false verdicts  before      now")
    for likely in ((0.5, 0.5), (1 / 3, 1 / 3, 1 / 3), (0.1, 0.25, 0.3, 0.25, 0.1)):
        for runs in (2, 3, 5):
            before, now = few_runs(runs, likely, draws)
            print(f"{len(likely)} evaluations, {runs} runs {before:8.1%} {now:8.1%}")
    print("failures: faster          before      now")
    for runs in (5, 10):
        for faster in (0.0, 0.1):
            before, now = failures(runs, faster, draws)
            print(f"{runs} runs, {faster:.0%} faster {before:10.1%} {now:8.1%}")
    print("drift: false verdicts     before      now")
    for name, (before, now) in drift(draws).items():
        print(f"{name:22} {before:9.1%} {now:8.1%}")


if __name__ == "__main__":
    main()
