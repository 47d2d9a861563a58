"""Batch size advice: time and cost of each batch size on a number of ranks, by the law over the batch size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from train_bench.errors import RequestError
from train_bench.forecast import law
from train_bench.forecast.law import Law
from train_bench.judge.rcp import Point
from train_bench.progress import Unit
from train_bench.rules.ruleset import BenchmarkRules

WITHIN, ABOVE, BELOW = "within", "above", "below"

BEYOND = 4
"""Multiple of the largest point up to which the table goes, unless batch sizes are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One batch size on one number of ranks.

    training     to the target by the law, in the benchmark's unit, without what the log says before any
    point        the same by the reference convergence point at this batch size; None without one
    samples      `training` in samples, and `steps` in steps of the optimizer
    evaluations  up to the one that finds the target reached
    minutes      of one run, training and evaluations
    cost         of one run; None without a price
    log_error    standard deviation of ln(truth / training)
    where        `within` the points, or extrapolated `above` the largest or `below` the smallest
    """

    batch_size: int
    ranks: int
    training: float
    point: float | None
    samples: float
    steps: float
    evaluations: int
    minutes: float
    cost: float | None
    log_error: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`fastest` and `cheapest` are of the rows up to the largest point, above which rules refuse a result for lack of a
    point; `faster_beyond` is the fastest of the others if it is faster than `fastest`. `cheapest` is None without a
    price."""

    law: Law
    rows: tuple[Row, ...]
    fastest: Row
    cheapest: Row | None
    faster_beyond: Row | None

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def advise(
    points: Sequence[Point],
    rules: BenchmarkRules,
    ranks: Sequence[int],
    seconds_per_step: Callable[[int, int], float],
    *,
    samples_per_unit: float = 1.0,
    batch_sizes: Sequence[int] | None = None,
    eval_seconds: float = 0.0,
    price: float | None = None,
) -> Advice:
    """Table of a benchmark for each of some numbers of ranks. `seconds_per_step` is a function of global batch size and
    number of ranks; `samples_per_unit` is the size of the training set where the benchmark counts epochs; `price` is
    that of a rank for an hour. Batch sizes that cannot be divided among the ranks are left out.

    On one number of ranks the fastest batch size is the cheapest, too: cost takes several to decide.
    """
    _refuse(ranks, eval_seconds, price, samples_per_unit)
    fitted = law.of(points, rules)
    table = _Table(
        points=points,
        rules=rules,
        fitted=fitted,
        seconds_per_step=seconds_per_step,
        samples_per_unit=samples_per_unit,
        eval_seconds=eval_seconds,
        price=price,
    )
    rows = tuple(
        table.row(size, count)
        for count in sorted(set(ranks))
        for size in (_candidates(points, count) if batch_sizes is None else sorted(set(batch_sizes)))
        if size >= count and size % count == 0
    )
    allowed = [row for row in rows if row.where != ABOVE]
    if not allowed:
        raise RequestError(
            f"No batch size up to {max(fitted.batch_sizes)}, the largest reference convergence point of "
            f"{rules.name}, is divisible by {', '.join(map(str, ranks))} ranks; give other numbers of "
            "ranks or batch sizes."
        )
    fastest = min(allowed, key=lambda row: row.minutes)
    beyond = [row for row in rows if row.where == ABOVE and row.minutes < fastest.minutes]
    return Advice(
        law=fitted,
        rows=rows,
        fastest=fastest,
        cheapest=None if price is None else min(allowed, key=lambda row: row.minutes * row.ranks),
        faster_beyond=min(beyond, key=lambda row: row.minutes, default=None),
    )


def _refuse(ranks: Sequence[int], eval_seconds: float, price: float | None, samples_per_unit: float) -> None:
    wrong = [count for count in ranks if count < 1]
    if wrong or not ranks:
        raise RequestError(f"ranks is {wrong[0] if wrong else 'empty'}; give whole numbers of at least 1.")
    for name, value in (("eval_seconds", eval_seconds), ("price", price or 0.0)):
        if not 0 <= value < math.inf:
            raise RequestError(f"{name} is {value:g}; give a number of at least 0.")
    if not 0 < samples_per_unit < math.inf:
        raise RequestError(f"samples_per_unit is {samples_per_unit:g}; give a number above 0.")


def _candidates(points: Sequence[Point], ranks: int) -> list[int]:
    """Candidate batch sizes: those of the points, and a power of two for each rank, from half the smallest point on."""
    sizes = [point.batch_size for point in points]
    powers = (ranks << power for power in range(64))
    within = {size for size in powers if min(sizes) <= 2 * size and size <= BEYOND * max(sizes)}
    return sorted(within.union(sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Common data of all rows of a table."""

    points: Sequence[Point]
    rules: BenchmarkRules
    fitted: Law
    seconds_per_step: Callable[[int, int], float]
    samples_per_unit: float
    eval_seconds: float
    price: float | None

    def row(self, size: int, ranks: int) -> Row:
        """A batch size on a number of ranks."""
        seconds = self.seconds_per_step(size, ranks)
        if not 0 < seconds < math.inf:
            raise RequestError(
                f"A step at batch size {size} on {ranks} rank(s) takes {seconds:g} s; it has to be above 0."
            )
        rule = self.rules.schedule_at(size)
        start = rule.start if rule else 0.0
        training = self.fitted.at(size)
        samples = training * (size if self.rules.unit is Unit.STEP else self.samples_per_unit)
        later = (start + training - rule.first[0]) / rule.period if rule else 0.0
        evaluations = 1 + max(0, round(later))
        minutes = (samples / size * seconds + evaluations * self.eval_seconds) / 60
        sizes = self.fitted.batch_sizes
        return Row(
            batch_size=size,
            ranks=ranks,
            training=training,
            point=next((point.mean - start for point in self.points if point.batch_size == size), None),
            samples=samples,
            steps=samples / size,
            evaluations=evaluations,
            minutes=minutes,
            cost=None if self.price is None else self.price * ranks * minutes / 60,
            log_error=self.fitted.log_error(size),
            where=ABOVE if size > max(sizes) else BELOW if size < min(sizes) else WITHIN,
        )
