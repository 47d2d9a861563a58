"""Comparison of two entries: speed-up, 95 % confidence interval, and the further runs needed to detect a difference.

All statistics are on logarithms of times. Times to train are products (samples to the target over samples per second)
and skewed to the right; their logarithms are nearly normal. The estimate is the ratio of geometric means: under a
change of speed alone it equals the ratio of any other mean, the olympic mean included, and it is the product of the
throughput and convergence ratios (decision 0063).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from train_bench.compare import independence
from train_bench.compare.design import (
    ANY,
    HISTORY,
    NOT_ALTERNATED,
    Design,
    History,
    design_of,
    drift_error,
    no_history,
)
from train_bench.compare.verdict import FAILURES, UNDECIDED, Outcomes, Verdict, decide
from train_bench.errors import RequestError
from train_bench.judge.entry import Judgement
from train_bench.judge.score import Score, ScoredRun
from train_bench.judge.state import state_of
from train_bench.judge.statistics import (
    ALPHA,
    student_power,
    student_probability,
    student_quantile,
    variances_of_difference,
    welch_error,
)
from train_bench.logs.record import DIED, TOO_SHORT_TO_TELL

POWER = 0.8
"""Statistical power at which the suggested number of runs detects a difference of the observed size."""

MOST_MORE = 200
"""Largest number of further runs that is suggested."""


class WithRuns(Protocol):
    """A score, or the stored runs of one."""

    @property
    def runs(self) -> Sequence[ScoredRun]:
        """Every run."""


LEAST_RUNS = 3
"""Fewest runs of a side whose times are compared. Times are multiples of an evaluation period, and two runs that end at
one evaluation show no variance."""


class TooFewRuns(RequestError):
    """Too few runs to compare: undecided."""

    exit_code = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Estimate of a ratio with its 95 % confidence interval (`low` to `high`) and the two-sided p-value of ratio 1,
    which is 1 without any variance: then the interval is unknown, and nothing is decided."""

    value: float
    low: float
    high: float
    p: float

    @property
    def decided(self) -> bool:
        """True if 1 lies outside the interval."""
        return self.p < 1 and (self.low > 1 or self.high < 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of two entries: `runs` counts the compared times, `failed` the runs that did not reach the target or break
    the rules (`broken` of these reached it), `left_out` the other runs: copies of logs, repeated seeds, runs without a
    partner, and one under way. `one_seed` is the seed that all compared runs have; None if there are several.
    `score_minutes` is `olympic_minutes` times `rcp_factor`. `disturbed` is the sentence of the score, and
    `too_short_to_tell` counts compared runs that are too short to know whether other processes disturbed them."""

    name: str
    runs: int
    failed: int
    broken: int
    left_out: int
    geometric_minutes: float
    olympic_minutes: float | None
    rcp_factor: float | None
    score_minutes: float | None
    valid: bool
    state: str
    disturbed: str | None = None
    too_short_to_tell: int = 0
    one_seed: int | None = None
    copies: int = 0
    repeated_seeds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Comparison of `b` with `a`. Ratios are above 1 where `b` is better, and of runs that reached the target only.

    verdict      whether b is faster, failures counted
    speedup      geometric mean time of a over that of b
    throughput   samples per second of b over those of a, None if logs lack samples
    convergence  samples to the target of a over those of b; speedup = throughput x convergence
    score_ratio  score of a over that of b; None where either has none
    paired       whether runs with the same seed were compared with each other
    design       how the two were run
    more_runs    further runs of each that detect a difference of this size; 0 if it is significant already,
                 None if they are more than 200, or runs do not suffice
    """

    benchmark: str
    a: Side
    b: Side
    verdict: Verdict
    paired: bool
    speedup: Ratio
    throughput: Ratio | None
    convergence: Ratio | None
    score_ratio: float | None
    more_runs: int | None
    design: Design

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self) | {"design": self.design.as_json()}


def compare_campaigns(
    name_a: str, a: Judgement, name_b: str, b: Judgement, history: History = no_history
) -> Comparison:
    """Compare two judged entries by their design; `history` knows the other campaigns of a plan on its machine.
    Raises as `compare`."""
    return compare(name_a, a.score, name_b, b.score, design_of(a, b, history))


def compare(name_a: str, a: Score, name_b: str, b: Score, design: Design = ANY) -> Comparison:
    """Compare two scores run by run. Raises `RequestError` where they cannot be compared: other benchmarks,
    targets or divisions, or fewer than three runs that count."""
    refuse_other_tasks(name_a, a, name_b, b)
    for name, score in ((name_a, a), (name_b, b)):
        if len(runs := usable(score)) < LEAST_RUNS:
            raise TooFewRuns(
                f"Undecided: {name} has {len(runs)} run(s) that count, of {len(score.runs)}; a comparison needs at "
                f"least {LEAST_RUNS}. {failures_in_words(name_a, a, name_b, b)}Run more seeds."
            )
    runs_a, runs_b, paired = comparable(a, b, name_a, name_b)
    outcomes = outcomes_of(a, b, name_a, name_b)
    if paired and len(runs_a) < LEAST_RUNS:
        raise TooFewRuns(
            f"Undecided: {name_a} and {name_b} have the same seeds, and only {len(runs_a)} of them "
            f"{'counts' if len(runs_a) == 1 else 'count'} on both sides; a comparison needs at least {LEAST_RUNS}. "
            "Run more seeds."
        )
    for name, runs in ((name_a, runs_a), (name_b, runs_b)):
        if len(runs) < LEAST_RUNS:
            raise TooFewRuns(
                f"Undecided: {name} has {len(runs)} run(s) that the other side does not have, too; a comparison needs "
                f"at least {LEAST_RUNS}."
            )
    times_a, times_b = logs_of(runs_a, "minutes"), logs_of(runs_b, "minutes")
    assert times_a is not None and times_b is not None  # a run without a time is not usable
    speeds_a, speeds_b = logs_of(runs_a, "samples_per_second"), logs_of(runs_b, "samples_per_second")
    samples_a, samples_b = logs_of(runs_a, "samples"), logs_of(runs_b, "samples")
    floors = floors_of(runs_a, runs_b, paired=paired)
    drift = drift_error(design.groups, (len(runs_a), len(runs_b))) if design.groups else None
    speedup = ratio_of(times_a, times_b, paired=paired, floors=floors, drift=drift)
    verdict = decide(speedup.low, speedup.high, outcomes, decided=speedup.decided, design=design)
    if verdict.word != UNDECIDED:
        further: int | None = 0
    elif verdict.reason == FAILURES or design.how in (NOT_ALTERNATED, HISTORY):
        further = None  # runs of the same two campaigns do not show what lies between campaigns
    else:
        further = more_runs(times_a, times_b, paired=paired, floors=floors)
    return Comparison(
        benchmark=a.benchmark,
        a=_side(name_a, a, runs_a, times_a),
        b=_side(name_b, b, runs_b, times_b),
        verdict=verdict,
        paired=paired,
        speedup=speedup,
        throughput=ratio_of(speeds_b, speeds_a, paired=paired, drift=drift)
        if speeds_a and speeds_b
        else None,
        convergence=ratio_of(samples_a, samples_b, paired=paired, floors=floors)
        if samples_a and samples_b
        else None,
        score_ratio=a.score_minutes / b.score_minutes if a.score_minutes and b.score_minutes else None,
        more_runs=further,
        design=design,
    )


def failures_in_words(name_a: str, a: Score, name_b: str, b: Score) -> str:
    """Sentences on the failures of two sides of which one has too few times; empty without failures."""
    parts = [
        f"{len(failed)} of {len(failed) + len(usable(score))} runs of {name} did not reach the target or broke the "
        "rules"
        for name, score in ((name_a, a), (name_b, b))
        if (failed := failures(score))
    ]
    if not parts:
        return ""
    try:
        more = outcomes_of(a, b, name_a, name_b).fails_more()
    except RequestError:  # one is a copy of the other
        more = 0
    less, other = {1: (name_b, name_a), -1: (name_a, name_b)}.get(more, (None, None))
    also = "" if less is None else f"; {less} reaches the target less often than {other}"
    return f"{', '.join(parts)}{also}. "


def refuse_other_tasks(name_a: str, a: Score, name_b: str, b: Score) -> None:
    """Raise `RequestError` if the two entries have different tasks."""
    for what, of_a, of_b in (
        ("benchmark", a.benchmark, b.benchmark),
        ("target", a.target, b.target),
        ("division", a.division, b.division),
    ):
        if None not in (of_a, of_b) and of_a != of_b:  # of logs without a beginning it is unknown
            raise RequestError(
                f"{name_a} and {name_b} differ in their {what} ({of_a} and {of_b}); times are comparable "
                f"only at the same {what}."
            )


def comparable(
    a: Score, b: Score, name_a: str = "A", name_b: str = "B"
) -> tuple[list[ScoredRun], list[ScoredRun], bool]:
    """The runs whose times are compared, and whether they come in pairs. Raises `RequestError` for an entry and its
    copy."""
    runs_a, runs_b = independence.without_common(name_a, usable(a), name_b, usable(b))
    paired = _same_seeds(a, b)
    if paired:
        common = {run.seed for run in runs_a} & {run.seed for run in runs_b}
        runs_a, runs_b = _in_order_of_seeds(runs_a, common), _in_order_of_seeds(runs_b, common)
    return runs_a, runs_b, paired


def pairs_of(a: Score, b: Score) -> tuple[list[ScoredRun], list[ScoredRun], bool]:
    """Pair the runs of entries that still grow, in the order in which they were made. They are paired if the seeds of
    one are a subset of those of the other. The runs that make the result are not known before the last."""
    in_turn = (sorted(filter(has_time, score.runs), key=lambda run: run.index) for score in (a, b))
    runs_a, runs_b = map(independence.without_copies, in_turn)
    if not _growing_by_the_same_seeds(a, b):
        return runs_a, runs_b, False
    partner = {run.seed: run for run in runs_b}
    runs_a = [run for run in runs_a if run.seed in partner]
    return runs_a, [partner[run.seed] for run in runs_a], True


def ratio_of(
    a: Sequence[float],
    b: Sequence[float],
    *,
    paired: bool,
    floors: Sequence[float] = (),
    drift: tuple[float, float] | None = None,
) -> Ratio:
    """exp(mean(a) - mean(b)) of logarithms, with Student's interval: Welch's for independent runs (Welch 1947,
    Satterthwaite's degrees of freedom), else that of paired differences. Of `drift`, error and degrees of freedom
    between campaigns, the wider interval counts."""
    difference = statistics.fmean(a) - statistics.fmean(b)
    error, freedom = wider(welch_error(*variances_of_difference(a, b, paired=paired, floors=floors)), drift)
    if error == 0:
        exactly = bounded_exp(difference)
        return Ratio(value=exactly, low=exactly, high=exactly, p=1.0)
    half = student_quantile(freedom, 1 - ALPHA / 2) * error
    return Ratio(
        value=bounded_exp(difference),
        low=bounded_exp(difference - half),
        high=bounded_exp(difference + half),
        p=2 * student_probability(freedom, -abs(difference) / error),
    )


def wider(inner: tuple[float, float], drift: tuple[float, float] | None) -> tuple[float, float]:
    """Of two errors with their degrees of freedom, the one whose 95 % interval is wider."""
    if drift is None:
        return inner
    return max(
        inner, drift, key=lambda one: student_quantile(one[1], 1 - ALPHA / 2) * one[0] if one[0] else 0.0
    )


def more_runs(
    a: Sequence[float], b: Sequence[float], *, paired: bool, floors: Sequence[float] = ()
) -> int | None:
    """Smallest number of further runs of each entry that detects the observed difference with probability `POWER`,
    given the observed deviations (power of the t-test by the noncentral t distribution). At least 1; None if it is
    above `MOST_MORE`."""
    difference = abs(statistics.fmean(a) - statistics.fmean(b))
    parts, sizes = variances_of_difference(a, b, paired=paired, floors=floors)
    for more in range(1, MOST_MORE + 1):
        error, freedom = welch_error(parts, [size + more for size in sizes])
        if error == 0 or student_power(freedom, difference / error, ALPHA / 2) >= POWER:
            return more
    return None


def floors_of(a: Sequence[ScoredRun], b: Sequence[ScoredRun], *, paired: bool) -> list[float]:
    """Least variances of logarithms of times, and of samples, that are known to an evaluation period h: (h / t)^2 / 12
    of a run of time t, that of a rectangle. Of pairs, those of both runs where they ended after different numbers of
    samples; where both ended at the same evaluation, their difference is one of speed."""
    if not paired:
        return [statistics.fmean(map(_resolution, side)) if side else 0.0 for side in (a, b)]
    return [
        statistics.fmean(
            0.0
            if one.samples is not None and one.samples == other.samples
            else _resolution(one) + _resolution(other)
            for one, other in zip(a, b, strict=True)
        )
    ]


def _resolution(run: ScoredRun) -> float:
    if run.evaluation_minutes is None or not run.minutes:
        return 0.0
    return min(1.0, run.evaluation_minutes / run.minutes) ** 2 / 12


def bounded_exp(logarithm: float) -> float:
    """The ratio, kept positive and finite: two runs of very different length have a very wide interval."""
    return math.exp(max(-700.0, min(700.0, logarithm)))


def usable(score: WithRuns) -> list[ScoredRun]:
    """Runs whose times can be compared: those that make the result, converged and comply; of copies of a log and of
    runs with one seed the first, unless all have that seed."""
    return _independent([run for run in score.runs if run.counted and has_time(run)])


def has_time(run: ScoredRun) -> bool:
    """True if the run converged and complies, so its time counts."""
    return run.converged and run.compliant and (run.minutes or 0) > 0


def _same_seeds(a: Score, b: Score) -> bool:
    """True if the runs are paired. The design decides, before any time is known: choosing by the observed correlation
    would make the interval too narrow."""
    seeds_a, seeds_b = ({run.seed for run in score.runs} for score in (a, b))
    distinct = len(seeds_a) == len(a.runs) and len(seeds_b) == len(b.runs)
    return distinct and seeds_a == seeds_b and None not in seeds_a


def _growing_by_the_same_seeds(a: WithRuns, b: WithRuns) -> bool:
    seeds_a, seeds_b = ({run.seed for run in score.runs} for score in (a, b))
    distinct = len(seeds_a) == len(a.runs) and len(seeds_b) == len(b.runs)
    return distinct and None not in seeds_a | seeds_b and (seeds_a <= seeds_b or seeds_b <= seeds_a)


def _in_order_of_seeds(runs: Sequence[ScoredRun], seeds: set[int | None]) -> list[ScoredRun]:
    return sorted((run for run in runs if run.seed in seeds), key=lambda run: run.seed or 0)


def logs_of(runs: Sequence[ScoredRun], field: str) -> list[float] | None:
    values = [getattr(run, field) for run in runs]
    return [math.log(value) for value in values] if all(value and value > 0 for value in values) else None


def failures(score: WithRuns) -> list[ScoredRun]:
    """Runs of the result that ended and have no time. The last one may be under way."""
    failed = [run for run in ended(score) if run.counted and not has_time(run)]
    return _independent(failed)


def _independent(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    return independence.without_repeated_seeds(independence.without_copies(runs))


def ended(score: WithRuns) -> list[ScoredRun]:
    """Runs that ended, with a time or without. The last one may be under way."""
    last = max((run.index for run in score.runs), default=0)
    return [run for run in score.runs if has_time(run) or run.status != DIED or run.index < last]


def outcomes_of(
    a: Score, b: Score, name_a: str = "A", name_b: str = "B", *, upto: int | None = None
) -> Outcomes:
    """Logarithms of the times of all runs that count, infinite where one failed, in pairs if the runs are; `upto` the
    index of a run only, and then of all of them: those that make the result are not known before the last."""
    ended_a, ended_b = (
        [*usable(score), *failures(score)]
        if upto is None
        else _independent([run for run in ended(score) if run.index <= upto])
        for score in (a, b)
    )
    runs_a, runs_b = independence.without_common(name_a, ended_a, name_b, ended_b)
    paired = _same_seeds(a, b) if upto is None else _growing_by_the_same_seeds(a, b)
    if paired:
        common = {run.seed for run in runs_a} & {run.seed for run in runs_b}
        runs_a, runs_b = _in_order_of_seeds(runs_a, common), _in_order_of_seeds(runs_b, common)
    logs_a, logs_b = (
        [math.log(run.minutes or 1.0) if has_time(run) else math.inf for run in runs]
        for runs in (runs_a, runs_b)
    )
    return Outcomes(a=logs_a, b=logs_b, paired=paired)


def _side(name: str, score: Score, runs: Sequence[ScoredRun], logs: Sequence[float]) -> Side:
    timed = [run for run in score.runs if run.counted and has_time(run)]
    originals = independence.without_copies(timed)
    failed = failures(score)
    return Side(
        name=name,
        runs=len(logs),
        failed=len(failed),
        broken=sum(run.converged for run in failed),
        left_out=len(score.runs) - len(logs) - len(failed),
        geometric_minutes=math.exp(statistics.fmean(logs)),
        olympic_minutes=score.olympic_minutes,
        rcp_factor=score.score_minutes / score.olympic_minutes
        if score.score_minutes and score.olympic_minutes
        else None,
        score_minutes=score.score_minutes,
        valid=bool(score.valid),
        state=state_of(score.valid, score.reasons),
        disturbed=score.disturbed,
        too_short_to_tell=sum(
            run.processor_lost is None and (run.minutes or 0) * 60 < TOO_SHORT_TO_TELL for run in runs
        )
        if score.launcher is not None
        else 0,
        one_seed=independence.only_seed(runs),
        copies=len(timed) - len(originals),
        repeated_seeds=len(originals) - len(independence.without_repeated_seeds(originals)),
    )
