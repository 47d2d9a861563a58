"""Fit of the batch size law, E(B) = E_min (1 + B / B_crit), to every official set of reference convergence points, and
to ours.

python bench/studies/batch_size_law.py [ROUND ...]        by default, of each benchmark every set that differs

One line for each: constants, the largest distance of a point from the law, and the error of each point by the law of
the others, median and largest. An epoch of 3D U-Net up to round 3.0 is padded to whole batches, so that its length
hangs on the batch size and no law over it is to be expected.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np

from train_bench.forecast import law
from train_bench.judge import rcp
from train_bench.judge.rcp import Point
from train_bench.plan import discover
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules

HEADING = f"{'round':<15} {'benchmark':<17} points {'batch sizes':>15} {'E_min':>10} {'B_crit':>10}  worst   left out"


def sets(rounds: Sequence[str]) -> Iterator[tuple[BenchmarkRules, tuple[Point, ...]]]:
    """Sets with two batch sizes or more; of those that several rounds share, that of the first round."""
    seen = set()
    for name in rounds:
        held = ruleset.load(name)
        for benchmark in held.benchmarks:
            rules = held.benchmark(benchmark)
            points = rcp.load(rules, discover.rcp_folders())
            content = (benchmark, rcp.digest(points))
            if len({point.batch_size for point in points}) > 1 and content not in seen:
                seen.add(content)
                yield rules, points


def line(rules: BenchmarkRules, points: Sequence[Point]) -> str:
    """A set in one line."""
    fitted = law.of(points, rules)
    rule = rules.schedule_at(points[0].batch_size)
    start = rule.start if rule else 0.0
    distances = [abs((point.mean - start) / fitted.at(point.batch_size) - 1) for point in points]
    errors = np.abs(np.expm1(-np.array(fitted.leave_one_out)))
    left_out = f"{100 * np.median(errors):.0f} / {100 * errors.max():.0f} %" if errors.size else "-"
    sizes = f"{points[0].batch_size}-{points[-1].batch_size}"
    unit = "samples" if fitted.in_steps else f"{rules.unit.value}s"
    constants = f"{fitted.e_min:>10.4g} {fitted.b_crit:>10.4g}"
    distance = f"{100 * max(distances):>4.0f} %"
    named = f"{rules.ruleset:<15} {rules.name:<17} {len(points):>6} {sizes:>15}"
    return f"{named} {constants} {distance} {left_out:>10} {unit}"


def main(rounds: Sequence[str]) -> None:
    """Print the table."""
    print(HEADING)
    for rules, points in sets([ruleset.full_name(name) for name in rounds] or ruleset.names()):
        print(line(rules, points))


if __name__ == "__main__":
    main(sys.argv[1:])
