"""Regression gate: is an entry slower than another, or than its history, by more than a limit? Two one-sided tests
(decision 0106).

`slower` if the lower confidence bound of its slow-down is above the limit, `not_slower` if the upper bound is below it,
else `less_often` if it fails to reach the target significantly more often, else `cannot_tell`. Each verdict is wrong in
at most 5 of 100 cases, and so exit code 1, which two of them have, in at most 10. Failures of one seed decide nothing.
A slow-down is the ratio of geometric mean times, above 1 where the entry takes longer.
"""

from __future__ import annotations

import bisect
import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from train_bench.compare.alpha_spending import increments, nominal_levels
from train_bench.compare.comparison import (
    LEAST_RUNS,
    MOST_MORE,
    POWER,
    WithRuns,
    bounded_exp,
    comparable,
    ended,
    failures,
    floors_of,
    has_time,
    logs_of,
    outcomes_of,
    pairs_of,
    refuse_other_tasks,
    usable,
    wider,
)
from train_bench.compare.design import (
    ANY,
    LEAST_CAMPAIGNS,
    NOT_ALTERNATED,
    Design,
    drift_error,
)
from train_bench.compare.independence import digests, only_seed
from train_bench.compare.verdict import DRIFT, FAILURES, INTERVAL, Outcomes
from train_bench.errors import RequestError
from train_bench.judge.entry import Judgement
from train_bench.judge.score import Score
from train_bench.judge.statistics import (
    ALPHA,
    student_power,
    student_quantile,
    variances_of_difference,
    welch_error,
)

SLOWER, LESS_OFTEN, NOT_SLOWER, CANNOT_TELL = "slower", "less_often", "not_slower", "cannot_tell"

EXIT_CODES = {NOT_SLOWER: 0, SLOWER: 1, LESS_OFTEN: 1, CANNOT_TELL: 3}
"""Exit codes of `compare --fail-if-slower`."""

SHARE = 0.8
"""Share of the level that the looks spend: their bounds assume known deviations. With deviations estimated from few
runs they exceed their nominal level by up to a quarter (simulated, from 2 to 30 pairs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Slow-down after `runs` of each entry: estimate, and one-sided lower and upper confidence bound at their
    levels."""

    runs: int
    value: float
    low: float
    high: float
    low_level: float
    high_level: float

    def verdict(self, limit: float) -> str:
        """Verdict of the bounds on slow-downs above 1 + `limit`."""
        if self.low > 1 + limit:
            return SLOWER
        return NOT_SLOWER if self.high < 1 + limit else CANNOT_TELL


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Significantly more failures of b than of a: [of a, of b], the failed runs and all that ended, at the look that
    found it, the one-sided p-value and its level (Fisher's exact test; of pairs, McNemar's)."""

    failed: tuple[tuple[int, int], tuple[int, int]]
    p: float
    level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Gate result of `b` against `a`, which is one entry or several of a history.

    verdict     `slower`, `less_often` (it reaches the target), `not_slower` or `cannot_tell`
    reason      why it cannot be told: `interval` (the bounds include the limit, or there are too few runs), `failures`
                (they differ, and a rank test that counts them does not agree) or `not alternated`
    limit       largest allowed slow-down, 0.03 for 3 %
    bounds      of the slow-down of runs that reached the target, at the look that decided, else at the last; None with
                fewer than three runs
    without_time  runs of b beyond those of a that ended and have no time, because of which b is not passed
    failed      [of a, of b]: runs that ended without a time, and all that ended; None of a history
    failing     why it is `less_often`; None if it is not
    most_pairs  largest number of pairs; None if the gate looks once
    looks       every look at pairs of runs, until one decided
    campaigns   folders of the history; empty without
    one_seed    seed that all compared runs of a, of b have; None for several, and of a history
    more_runs   further runs (of each, or of b against a history) that detect a slow-down of this size with a
                power of 80 %; 0 if it is significant, None if they are more than 200, or do not suffice
    """

    benchmark: str
    a: str
    b: str
    verdict: str
    limit: float
    paired: bool
    bounds: Bounds | None
    without_time: int
    most_pairs: int | None = None
    looks: tuple[Bounds, ...] = ()
    campaigns: tuple[str, ...] = ()
    more_runs: int | None = None
    one_seed: tuple[int | None, int | None] = (None, None)
    reason: str | None = None
    failed: tuple[tuple[int, int], tuple[int, int]] | None = None
    failing: Failing | None = None
    design: Design = ANY

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self) | {"design": self.design.as_json()}


def limit_of(text: str) -> float:
    """Parse a limit in percent: `3%` or `3` -> 0.03. A fraction without `%` may be meant as a ratio and is refused."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(%?)", text.strip())
    if match is None or float(match[1]) > 1000:
        raise RequestError(
            f"--fail-if-slower is {text!r}; give a percentage from 0 to 1000, such as 3 or 3%."
        )
    if 0 < float(match[1]) < 1 and not match[2]:
        raise RequestError(
            f"--fail-if-slower is {text!r}, which may be meant as a percentage or as a ratio; give '{match[1]}%' or "
            f"'{100 * float(match[1]):g}%'."
        )
    return float(match[1]) / 100


def against_one(
    name_a: str,
    a: Score,
    name_b: str,
    b: Score,
    limit: float,
    *,
    others: int = 1,
    most_pairs: int | None = None,
    level: float | None = None,
    design: Design = ANY,
) -> Gate:
    """Gate between two entries, one of `others` that are tested together. With `most_pairs` it tests after
    each pair of runs, in the order in which they were made, until it decides; with a `level` as well, `slower` is wrong
    with at most that probability, however small, and failures decide nothing.

    Raises `RequestError` if their times cannot be compared.
    """
    refuse_other_tasks(name_a, a, name_b, b)
    refuse_few_pairs(most_pairs)
    runs_a, runs_b, paired = pairs_of(a, b) if most_pairs is not None else comparable(a, b, name_a, name_b)
    without = max(0, _without_time(b) - _without_time(a))
    there = min(len(runs_a), len(runs_b))
    if most_pairs is None:
        tests = [(len(runs_a), len(runs_b), ALPHA / others, ALPHA)] if there >= LEAST_RUNS else []
    else:
        levels = [nominal_levels(SHARE * one, most_pairs) for one in (ALPHA / others, ALPHA)]
        if level is not None:
            levels[0] = increments(level, most_pairs)
        sizes = range(LEAST_RUNS, min(there, most_pairs) + 1)
        tests = [(size, size, *both) for size, both in zip(sizes, zip(*levels, strict=True), strict=False)]
    failing, last = None, math.inf
    repeated = any(
        only_seed(ended(side)) is not None for side in (a, b)
    )  # no further evidence of a share of failures
    if level is None and not repeated:
        failing, last = _failing(a, b, name_a, name_b, ALPHA / others, most_pairs)
    looks: list[Bounds] = []
    verdict: str = CANNOT_TELL
    reason: str | None = INTERVAL
    for size_a, size_b, low_level, high_level in tests:
        first_a, first_b = runs_a[:size_a], runs_b[:size_b]
        upto = None if most_pairs is None else max(run.index for run in (*first_a, *first_b))
        if upto is not None and upto > last:
            break
        of_a, of_b = logs_of(first_a, "minutes") or [], logs_of(first_b, "minutes") or []
        floors = floors_of(first_a, first_b, paired=paired)
        drift = drift_error(design.groups, (size_a, size_b)) if design.groups else None
        error, freedom = wider(
            welch_error(*variances_of_difference(of_a, of_b, paired=paired, floors=floors)), drift
        )
        difference = statistics.fmean(of_b) - statistics.fmean(of_a)
        looks.append(_bounds(min(size_a, size_b), difference, error, freedom, low_level, high_level))
        outcomes = outcomes_of(a, b, name_a, name_b, upto=upto)
        verdict, reason = _verdict(looks[-1], limit, without, outcomes, design)
        if verdict != CANNOT_TELL:
            break
    if verdict == CANNOT_TELL and failing is not None:
        verdict, reason = LESS_OFTEN, None
    bounds = looks[-1] if looks else None
    more: int | None = 0
    if verdict == CANNOT_TELL:
        alone = looks and reason == INTERVAL and not design.groups
        more = _more(of_a, of_b, limit, paired=paired, floors=floors, level=ALPHA / others) if alone else None
    return Gate(
        benchmark=b.benchmark,
        a=name_a,
        b=name_b,
        verdict=verdict,
        limit=limit,
        paired=paired,
        bounds=bounds,
        without_time=without,
        most_pairs=most_pairs,
        looks=tuple(looks) if most_pairs is not None else (),
        more_runs=more,
        one_seed=(only_seed(runs_a), only_seed(runs_b)),
        reason=reason,
        failed=(_ended(a), _ended(b)),
        failing=failing if verdict == LESS_OFTEN else None,
        design=design,
    )


def refuse_few_pairs(most_pairs: int | None) -> None:
    """Raise `RequestError` for a sequential test of too few pairs."""
    if most_pairs is not None and most_pairs < LEAST_RUNS:
        raise RequestError(f"--pairs is {most_pairs}; a test needs at least {LEAST_RUNS} pairs.")


def against_history(
    history: Sequence[tuple[str, WithRuns]], name: str, b: Score, limit: float, *, others: int = 1
) -> Gate:
    """Gate between an entry and earlier campaigns. A campaign is one observation, because runs of one day are
    correlated. Raises `RequestError` if there are too few."""
    history = _originals(history, b)
    campaigns = [logs for _, score in history if len(logs := logs_of(usable(score), "minutes") or []) > 1]
    if len(campaigns) < LEAST_CAMPAIGNS:
        raise RequestError(
            f"The history has {len(campaigns)} valid campaign(s) of {b.benchmark} on the system of {name} "
            f"before it; at least {LEAST_CAMPAIGNS} are needed to estimate the variance between campaigns."
        )
    logs = logs_of(usable(b), "minutes") or []
    bounds = None
    if len(logs) >= LEAST_RUNS:
        floor = floors_of(usable(b), (), paired=False)[0]
        error, freedom = _history_error(campaigns, logs, len(logs), floor)
        difference = statistics.fmean(logs) - statistics.fmean(map(statistics.fmean, campaigns))
        bounds = _bounds(len(logs), difference, error, freedom, ALPHA / others, ALPHA)
    failed = [_without_time(score) / len(score.runs) for _, score in history]
    without = max(0, _without_time(b) - math.ceil(max(failed) * len(b.runs)))
    verdict, reason = _verdict(bounds, limit, without)
    more: int | None = 0
    if verdict == CANNOT_TELL:
        more = None
        if bounds is not None:
            distance = abs(math.log(bounds.value / (1 + limit)))
            more = _first(
                lambda runs: (distance, *_history_error(campaigns, logs, len(logs) + runs, floor)),
                ALPHA / others,
            )
    return Gate(
        benchmark=b.benchmark,
        a=f"{len(campaigns)} campaigns",
        b=name,
        verdict=verdict,
        limit=limit,
        paired=False,
        bounds=bounds,
        without_time=without,
        campaigns=tuple(folder for folder, _ in history),
        more_runs=more,
        one_seed=(None, only_seed(usable(b))),
        reason=reason,
    )


def _originals(history: Sequence[tuple[str, WithRuns]], b: WithRuns) -> list[tuple[str, WithRuns]]:
    """Campaigns of a history without those that have a log of an earlier one, or of `b`."""
    known, kept = digests(*b.runs), []
    for folder, score in history:
        own = digests(*score.runs)
        if not own & known:
            kept.append((folder, score))
        known |= own
    return kept


def started_ms(judged: Judgement) -> int:
    """Start time of an entry's first run in ms; 0 if no log has it. Histories are in this order."""
    return min((record.started_ms for record in judged.records if record.started_ms is not None), default=0)


def task_and_system(judged: Judgement) -> tuple[Any, ...]:
    """Key that an entry shares with its history; the host name is no part of a system."""
    score = judged.score
    found = judged.location.machine
    keys = ("platform", "accelerators", "threads_per_rank")
    system = [found.get(key) for key in keys] if found else None
    return score.benchmark, score.target, score.division, score.system, score.world_size, system


def earlier(entries: Sequence[Judgement], one: Judgement, last: int) -> list[tuple[str, WithRuns]]:
    """The last valid entries of the task and system of `one` that began before it, by their folders."""
    before = {
        entry.location.folder.resolve(): entry
        for entry in entries
        if entry.score.valid
        and started_ms(entry) < started_ms(one)
        and task_and_system(entry) == task_and_system(one)
    }
    by_time = sorted(before.values(), key=started_ms)
    return [(str(entry.location.folder), entry.score) for entry in by_time[-last:]]


def _verdict(
    bounds: Bounds | None,
    limit: float,
    without_time: int,
    outcomes: Outcomes | None = None,
    design: Design = ANY,
) -> tuple[str, str | None]:
    """Verdict and, if undecided, its reason."""
    verdict = CANNOT_TELL if bounds is None else bounds.verdict(limit)
    if verdict == CANNOT_TELL:
        return CANNOT_TELL, DRIFT if bounds is not None and design.how == NOT_ALTERNATED else INTERVAL
    if verdict == NOT_SLOWER and without_time:
        return CANNOT_TELL, FAILURES
    if verdict == SLOWER and bounds is not None and outcomes is not None and outcomes.differ():
        fails_less = outcomes.fails_more() == -1
        if fails_less or outcomes.ranks(limit).longer > bounds.low_level:
            return CANNOT_TELL, FAILURES
    if design.how == NOT_ALTERNATED:
        return CANNOT_TELL, DRIFT
    return verdict, None


def _failing(
    a: Score, b: Score, name_a: str, name_b: str, level: float, most_pairs: int | None
) -> tuple[Failing | None, float]:
    """The look that finds more failures of b, with the index of its last run; none, and infinity."""
    if most_pairs is None:
        looks: Sequence[tuple[int | None, float]] = [(None, level)]
    else:
        indices = (sorted(run.index for run in ended(side)) for side in (a, b))
        last = [max(both) for both in zip(*indices, strict=False)]
        levels = nominal_levels(SHARE * level, most_pairs)
        looks = list(zip(last[LEAST_RUNS - 1 :], levels, strict=False))
    for upto, of_look in looks:
        outcomes = outcomes_of(a, b, name_a, name_b, upto=upto)
        if outcomes.failed[1] and (p := outcomes.more_failures_p()) <= of_look:
            failed_a, failed_b = outcomes.failed
            counts = (failed_a, len(outcomes.a)), (failed_b, len(outcomes.b))
            return Failing(failed=counts, p=p, level=of_look), math.inf if upto is None else upto
    return None, math.inf


def _ended(score: WithRuns) -> tuple[int, int]:
    """Failures, and all runs of the result that ended."""
    failed = len(failures(score))
    return failed, failed + len(usable(score))


def _without_time(score: WithRuns) -> int:
    """Number of an entry's finished runs without a time. The last one may be under way."""
    return sum(not has_time(run) for run in ended(score))


def _bounds(
    runs: int, difference: float, error: float, freedom: float, low_level: float, high_level: float
) -> Bounds:
    """Bounds of a difference; without any variance they are as far apart as a ratio can be, so that they decide
    nothing."""
    below = student_quantile(freedom, 1 - low_level) * error if error else math.inf
    above = student_quantile(freedom, 1 - high_level) * error if error else math.inf
    return Bounds(
        runs=runs,
        value=bounded_exp(difference),
        low=bounded_exp(difference - below),
        high=bounded_exp(difference + above),
        low_level=low_level,
        high_level=high_level,
    )


def _more(
    a: Sequence[float],
    b: Sequence[float],
    limit: float,
    *,
    paired: bool,
    floors: Sequence[float],
    level: float,
) -> int | None:
    distance = abs(statistics.fmean(b) - statistics.fmean(a) - math.log1p(limit))
    parts, sizes = variances_of_difference(a, b, paired=paired, floors=floors)
    return _first(lambda more: (distance, *welch_error(parts, [size + more for size in sizes])), level)


def _first(further: Callable[[int], tuple[float, float, float]], level: float) -> int | None:
    """Smallest number of further runs with which the test has the required power (noncentral t distribution). `further`
    gives distance from the limit, standard error and degrees of freedom."""

    def enough(more: int) -> bool:
        distance, error, freedom = further(more)
        return error == 0 or student_power(freedom, distance / error, level) >= POWER

    if not enough(MOST_MORE):
        return None
    return 1 + bisect.bisect_left(range(1, MOST_MORE), True, key=enough)


def _history_error(
    campaigns: Sequence[Sequence[float]], b: Sequence[float], runs: int, floor: float
) -> tuple[float, float]:
    """Standard error of a new campaign's mean minus that of the history, and its degrees of freedom (Satterthwaite).

    The variance of campaign means contains the variance between campaigns and the seed variance of each. With fewer
    `runs` than the history has, the new campaign has more seed variance; less of it is not deducted. `floor` is the
    least variance of a run, by the evaluation period of the new ones.
    """
    count = len(campaigns)
    share = statistics.fmean(1 / len(logs) for logs in campaigns)
    between = max(statistics.variance([statistics.fmean(logs) for logs in campaigns]), floor * share)
    groups = [*campaigns, b]
    inner = sum(len(logs) - 1 for logs in groups)
    within = math.fsum(statistics.variance(logs) * (len(logs) - 1) for logs in groups) / inner
    lacking = max(0.0, 1 / runs - share)
    terms = ((1 + 1 / count) * between, lacking * within)
    total = math.fsum(terms)
    if total < 1e-24:
        return 0.0, math.inf
    return math.sqrt(total), total**2 / (terms[0] ** 2 / (count - 1) + terms[1] ** 2 / inner)
