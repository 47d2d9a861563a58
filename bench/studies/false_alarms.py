"""False alarm rate of the RCP test on honest campaigns of mini benchmarks, by the runs of its reference points.

    python bench/studies/false_alarms.py [FOLDER ...]

A row for each point: the exact probability that the olympic mean of five runs drawn from the point is below the
bound, of the official test (level 5 %, pruned points) and of the round's. FOLDERs are campaigns with fresh seeds: their
verdicts are counted, and the probability is computed once more with five runs drawn from all of theirs.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from train_bench.judge import rcp
from train_bench.plan import discover
from train_bench.rules import ruleset
from train_bench.rules.ruleset import OFFICIAL_RCP_LEVEL, BenchmarkRules

ROUND = "mini-1.0"


def probability_of_failing(values: Sequence[float], rules: BenchmarkRules, bound: float) -> float:
    """Exact probability that the olympic mean of as many runs as a result has, drawn from `values` with replacement, is
    below `bound`."""
    of_value = Counter(values)
    probability = 0.0
    for drawn in itertools.combinations_with_replacement(sorted(of_value), rules.runs):
        if statistics.fmean(drawn[rules.drop : rules.runs - rules.drop]) < bound:
            ways = math.factorial(rules.runs)
            for value, times in Counter(drawn).items():
                ways = ways // math.factorial(times) * of_value[value] ** times
            probability += ways / len(values) ** rules.runs
    return probability


def bound_at(points: Sequence[rcp.Point], rules: BenchmarkRules, point: rcp.Point) -> float:
    """The lowest mean that passes at the batch size of `point`; minus infinity where none fails."""
    bound = rcp.verdict(points, rules, point.batch_size, [point.mean] * rules.runs).bound
    return -math.inf if bound is None else bound


def main() -> None:
    """Print the table, then what fresh campaigns say."""
    print(
        f"{'benchmark':24}{'batch':>6}{'runs':>6}{'mean':>10}{'official':>10}{'fails':>9}{ROUND:>10}{'fails':>9}"
    )
    for name in ruleset.load(ROUND).benchmarks:
        rules = ruleset.load(ROUND).benchmark(name)
        points = rcp.load(rules, discover.rcp_folders())
        for point in points:
            cells = ""
            for test in (replace(rules, rcp_level=OFFICIAL_RCP_LEVEL, rcp_pruned=True), rules):
                bound = bound_at(points, test, point)
                cells += f"{bound:10.2f}{probability_of_failing(point.values, rules, bound):9.3%}"
            print(f"{name:24}{point.batch_size:6}{point.count:6}{point.mean:10.2f}{cells}")
    if sys.argv[1:]:
        _fresh([Path(word) for word in sys.argv[1:]])


def _fresh(folders: Sequence[Path]) -> None:
    scores = [json.loads((folder / "score.json").read_text()) for folder in folders]
    rules = ruleset.load(ROUND).benchmark(scores[0]["benchmark"])
    points = rcp.load(rules, discover.rcp_folders())
    (point,) = (one for one in points if one.batch_size == scores[0]["global_batch_size"])
    values = [run["convergence"] for score in scores for run in score["runs"]]
    refused = sum(not score["valid"] for score in scores)
    chance = probability_of_failing(values, rules, bound_at(points, rules, point))
    print(
        f"{len(scores)} campaigns of {rules.name}, {len(values)} runs: mean {statistics.fmean(values):.2f}, deviation "
        f"{statistics.pstdev(values):.2f}; {refused} not valid; {chance:.3%} of campaigns drawn from them fail"
    )


if __name__ == "__main__":
    main()
