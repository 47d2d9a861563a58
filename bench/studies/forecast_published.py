"""Cross-validated accuracy of forecasts of published results from other published results.

    python bench/studies/forecast_published.py TABLE.csv [--rounds v4.0,v4.1] [--split]

TABLE.csv has the columns of the table that comes with train_bench (`train-bench index published` derives one). A family
is one submitter's closed entries of a round for one benchmark and accelerator; those with three sizes or more are
forecast: the step time of every larger system from the two smallest sizes alone, the samples to the target from the
reference convergence points of the round. The prior of other families is learned from the table and from the one that
comes with train_bench, without whatever the submitter published for this benchmark in that round or a later one, and
without any family that holds a forecast entry. With --split it is learned from half of the submitters and the other
half is forecast, both ways.

Printed by benchmark: rows, median and 90th percentile of |forecast / published - 1|, that of the model a (B / p) + c
log2 p without any learning on the same rows, and the coverage of the 80 % interval over the published minutes. The last
line is `median <error> coverage80 <share> rows <n>`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from train_bench.forecast import families, published_pace
from train_bench.forecast.families import Family, Size, StepTimes
from train_bench.forecast.published_pace import needed
from train_bench.forecast.simulate import simulate
from train_bench.judge.published import published_entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One system that was asked for: forecast / published - 1 of both models, and whether the 80 % interval held it."""

    benchmark: str
    error: float
    simple: float
    held: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--rounds", help="ask only for entries of these, for example v4.0,v4.1")
    parser.add_argument(
        "--split", action="store_true", help="learn from half of the submitters, ask the others"
    )
    options = parser.parse_args()
    table = published_entries.read(options.table)
    known = families.families({*table, *published_entries.shipped()}, needed)
    rounds = options.rounds.split(",") if options.rounds else sorted({entry.round for entry in table})
    of_table = families.families(table, needed)
    asked = [family for family in of_table if family.round in rounds and len(scales(family)) > 2]
    if not asked:
        print(f"No family of three sizes in rounds {', '.join(rounds)} of {options.table}.", file=sys.stderr)
        return 1
    rows = [row for family in asked for row in ask(family, known, split=options.split)]
    print(f"{'benchmark':18} {'rows':>5} {'median':>7} {'p90':>7} {'a,c model':>9} {'coverage80':>10}")
    for benchmark in sorted({row.benchmark for row in rows}):
        tell(benchmark, [row for row in rows if row.benchmark == benchmark])
    tell("all", rows)
    median, _, _, coverage = summary(rows)
    print(f"median {median:.4f} coverage80 {coverage:.4f} rows {len(rows)}")
    return 0


def scales(family: Family) -> list[int]:
    """Numbers of accelerators of a family, smallest first."""
    return sorted({size.accelerators for size in family.sizes})


def ask(family: Family, known: Sequence[Family], *, split: bool) -> list[Row]:
    """The systems of a family that are larger than the two smallest sizes."""
    second = scales(family)[1]
    fitted = [size for size in family.sizes if size.accelerators <= second]
    asked = [size for size in family.sizes if size.accelerators > second]
    others = tuple(other for other in known if may_be_known(other, family, asked, split=split))
    times = families.fit(fitted, learn(others, family.benchmark))
    return [row(family, times, fitted, size) for size in asked]


learn = cache(families.learn)


def may_be_known(other: Family, family: Family, asked: Sequence[Size], *, split: bool) -> bool:
    """True if a family may be learned from where another is asked."""
    if split:
        return half_of(other) != half_of(family)
    same = (other.submitter, other.benchmark) == (family.submitter, family.benchmark)
    return not (same and number(other) >= number(family)) and set(other.sizes).isdisjoint(asked)


def number(family: Family) -> float:
    return float(family.round.removeprefix("v"))


def half_of(family: Family) -> int:
    """Half of the submitters, the same in every table."""
    return sum(family.submitter.encode()) % 2


def row(family: Family, times: StepTimes, fitted: Sequence[Size], asked: Size) -> Row:
    """A forecast beside what was published."""
    of_reference = published_pace.expected(family.round, family.benchmark, asked.batch_size)
    assert of_reference is not None  # families are made of entries with points
    pace = published_pace.pace(family, times, fitted, asked.accelerators, asked.batch_size)
    forecast = simulate(of_reference, pace, runs=RUNS, drop=1).score
    unit = published_pace.unit(family.round, family.benchmark, asked.batch_size)
    steps = published_pace.to_the_target(of_reference) * unit / asked.batch_size / 60
    minutes = steps * float(np.exp(asked.log_step + asked.log_samples))
    low, high = forecast.within[0.8]
    return Row(
        benchmark=family.benchmark,
        error=abs(forecast.median / minutes - 1),
        simple=abs(steps * simple(fitted, asked) / minutes - 1),
        held=low <= minutes <= high,
    )


def simple(fitted: Sequence[Size], asked: Size) -> float:
    """The step time by a (B / p) + c log2 p, least squares of the relative errors of the two smallest sizes."""
    terms = np.array([terms_of(size) for size in (*fitted, asked)])
    seconds = np.exp([size.log_step for size in fitted])
    constants = np.linalg.lstsq(terms[:-1] / seconds[:, None], np.ones(len(fitted)), rcond=None)[0]
    return float(terms[-1] @ constants)


def terms_of(size: Size) -> tuple[float, float]:
    return size.batch_size / size.accelerators, float(np.log2(size.accelerators))


def tell(name: str, rows: Sequence[Row]) -> None:
    median, high, plain, coverage = summary(rows)
    print(f"{name:18} {len(rows):5} {median:7.1%} {high:7.1%} {plain:9.1%} {coverage:10.1%}")


def summary(rows: Sequence[Row]) -> tuple[float, float, float, float]:
    errors = [row.error for row in rows]
    return (
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        float(np.median([row.simple for row in rows])),
        float(np.mean([row.held for row in rows])),
    )


RUNS = 5
"""Runs of a campaign; their number hardly matters beside the error of the pace."""

if __name__ == "__main__":
    sys.exit(main())
