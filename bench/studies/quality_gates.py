"""Errors and power of `compare --fail-if-worse --sequential` on real runs of dlrm_mini, resampled.

    python bench/studies/quality_gates.py collect FOLDER [--equal 20] [--planted 10]
    python bench/studies/quality_gates.py FOLDER [--pairs 200]

The first line trains equal runs and three planted regressions of the recipe for one and a half epochs, before any run
reaches the target, into campaigns below FOLDER; typed again, it goes on. The second draws pairs of entries of ten runs
each: from the equal ones without replacement, and from these against each regression. It prints how often the gate says
that B is worse, is not worse, and cannot tell, and after how many pairs of runs, for margins of a half and of one
standard deviation. At the margin itself both verdicts are errors.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.campaign.comparing import judge_one
from train_bench.compare.quality_gate import QualityGate, against_one
from train_bench.judge.entry import Judgement

RATE = "benchmark.hyperparameters.opt_base_learning_rate={0} benchmark.hyperparameters.sgd_opt_base_learning_rate={0}"
PLANTED = {
    "a learning rate of 0.3, not 3": RATE.format(0.3).split(),
    "batches of 1024, not 256": ["benchmark.hyperparameters.global_batch_size=1024"],
    "a learning rate of 12, not 3": RATE.format(12).split(),
}
EQUAL, RUNS, METRIC = "equal", 10, "AUC"


def main() -> None:
    """Collect, or print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="+", metavar="[collect] FOLDER")
    parser.add_argument("--equal", type=int, default=20)
    parser.add_argument("--planted", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    folder = Path(options.words[-1])
    if options.words[0] == "collect":
        collect(folder / EQUAL, options.equal, [])
        for number, overrides in enumerate(PLANTED.values()):
            collect(folder / f"planted_{number}", options.planted, overrides)
    else:
        study(folder, options.pairs)


def collect(folder: Path, runs: int, overrides: Sequence[str]) -> None:
    """Train runs of fresh seeds; a campaign that was begun is continued."""
    words = [f"resume={folder}"]
    if not (folder / "plan.json").exists():
        words = [
            "benchmark=dlrm_mini",
            "benchmark.evaluation.until=1.5",
            f"runs={runs}",
            f"output={folder}",
            *overrides,
        ]
    subprocess.run([sys.executable, "-m", "train_bench", "run", *words], check=False)


def study(folder: Path, pairs: int) -> None:
    """Print the shares of each verdict."""
    generator = np.random.default_rng(20261128)
    equal = judge_one(folder / EQUAL, None)
    qualities = [record.evaluations[-1].value for record in equal.records]
    finals = [value[METRIC] if isinstance(value, dict) else value for value in qualities]
    spread = statistics.stdev(finals)
    print(
        f"{len(finals)} equal runs: {METRIC} {statistics.fmean(finals):.5f}, standard deviation {spread:.5f}"
    )
    print(f"{'B against A':40}{'margin':>10}{'worse':>8}{'not':>8}{'cannot':>8}{'pairs':>7}")
    for factor in (0.5, 1.0):
        margin = factor * spread

        def halves() -> tuple[Judgement, Judgement]:
            order = generator.permutation(len(finals))
            return drawn(equal, order[:RUNS]), drawn(equal, order[RUNS : 2 * RUNS])

        def at_the_margin(margin: float = margin) -> tuple[Judgement, Judgement]:
            a, b = halves()
            return a, shifted(b, -margin)

        show("equal", margin, halves, pairs)
        show("equal, B lower by the margin", margin, at_the_margin, pairs)
        for number, name in enumerate(PLANTED):
            place = folder / f"planted_{number}"
            if place.exists():
                show_planted(name, equal, judge_one(place, None), margin, generator, pairs)


def show_planted(
    name: str, equal: Judgement, worse: Judgement, margin: float, generator: np.random.Generator, pairs: int
) -> None:
    """Verdicts on a planted regression, with its size."""

    def draw() -> tuple[Judgement, Judgement]:
        sides = (generator.permutation(len(one.records))[:RUNS] for one in (equal, worse))
        of_a, of_b = sides
        return drawn(equal, of_a), drawn(worse, of_b)

    show(name, margin, draw, pairs)


def show(name: str, margin: float, draw: Callable[[], tuple[Judgement, Judgement]], pairs: int) -> None:
    """One row."""
    found: list[QualityGate] = []
    for _ in range(pairs):
        a, b = draw()
        found += against_one("A", a, "B", b, margin, most_pairs=RUNS)
    count = Counter(one.verdict for one in found)
    shares = "".join(f"{count[word] / len(found):8.1%}" for word in ("worse", "not_worse", "cannot_tell"))
    looked = statistics.fmean(one.runs[0] + one.without[0] for one in found)
    print(f"{name:40}{margin:10.5f}{shares}{looked:7.1f}")


def drawn(judgement: Judgement, order: Sequence[int]) -> Judgement:
    """An entry of some of the runs, in this order; their qualities count whatever else the judge says of them, such as
    that this checkout was edited while they were collected."""
    runs = {run.index: run for run in judgement.score.runs}
    chosen = [judgement.records[at] for at in order]
    return replace(
        judgement,
        records=tuple(replace(record, index=at) for at, record in enumerate(chosen)),
        score=replace(
            judgement.score,
            runs=tuple(
                replace(runs[record.index], index=at, compliant=True) for at, record in enumerate(chosen)
            ),
        ),
    )


def shifted(judgement: Judgement, by: float) -> Judgement:
    """The entry with other qualities."""

    def moved(value: Any) -> Any:
        return {name: one + by for name, one in value.items()} if isinstance(value, dict) else value + by

    return replace(
        judgement,
        records=tuple(
            replace(
                record,
                evaluations=tuple(one._replace(value=moved(one.value)) for one in record.evaluations),
            )
            for record in judgement.records
        ),
    )


if __name__ == "__main__":
    main()
