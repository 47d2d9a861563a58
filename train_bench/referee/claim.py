"""Test of a claim: is the mean quality of a record beyond the target, and is it faster than the record before it?"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from train_bench.judge.statistics import (
    student_power,
    student_probability,
    student_quantile,
    variances_of_difference,
    welch_error,
)
from train_bench.referee.readers import Record

LEVEL, POWER = 0.01, 0.8
"""Significance level of the boards that state one, and usual power."""

MOST_RUNS = 1_000_000
TELLING_DIGITS = 5
"""Digits of a time from which on two runs of one record do not have it by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Threshold of a quality: `above` is True where a higher one is better. `deviation` is the standard deviation of
    runs, where a board fixes it; None: that of the record's own runs."""

    value: float
    above: bool
    level: float = LEVEL
    power: float = POWER
    deviation: float | None = None

    def margin(self, quality: float) -> float:
        """Distance beyond the target; negative if it is missed."""
        return quality - self.value if self.above else self.value - quality


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Time of a record against the one before it: how much shorter its mean is, the 95 % confidence interval of that
    by Welch, and the one-sided p-value of no gain; None where the times have no spread, as counts of steps."""

    former: str
    shorter: float
    share: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the runs of a record show.

    p        one-sided p-value of a mean that is not beyond the target; None if it cannot be tested, for the `reason`
    needed   least number of runs that shows this margin with the power asked for, if the spread is this one; None if
             the margin is on the wrong side or the spread is unknown
    time     mean time in seconds, or of a record that counts steps their number
    """

    name: str
    runs: int
    reached: int
    mean: float
    deviation: float | None
    p: float | None
    shown: bool
    needed: int | None
    reason: str | None = None
    time: float | None = None
    time_deviation: float | None = None
    counted: bool = False
    gain: Gain | None = None
    facts: dict[str, str] = field(default_factory=dict)
    questions: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        content = asdict(self)
        return content | {
            "mean": self.mean if math.isfinite(self.mean) else None,
            "questions": [*self.questions],
        }


def judge_record(
    record: Record, target: Target, name: str, former: tuple[str, Record] | None = None
) -> Claim:
    """Test one record, and its time against that of the former one."""
    qualities = [run.quality for run in record.runs]
    finite = [quality for quality in qualities if math.isfinite(quality)]
    mean = statistics.fmean(qualities) if len(finite) == len(qualities) else math.nan
    spread = target.deviation
    if spread is None and len(finite) > 1:
        spread = statistics.stdev(finite)
    p, reason = _tested(qualities, mean, spread, target)
    margin = target.margin(mean)
    times = _times(record)
    questions = [*_questions(record)]
    gain = None
    if former is not None:
        gain = _gain(former[0], _times(former[1]), times) if record.counted == former[1].counted else None
        questions += _differences(former[0], former[1], record)
    return Claim(
        name=name,
        runs=len(qualities),
        reached=sum(target.margin(quality) > 0 for quality in qualities),
        mean=mean,
        deviation=spread,
        p=p,
        shown=p is not None and p < target.level,
        needed=runs_needed(margin / spread, target) if spread and margin > 0 else None,
        reason=reason,
        time=statistics.fmean(times) if times else None,
        time_deviation=statistics.stdev(times) if len(times) > 1 else None,
        counted=record.counted,
        gain=gain,
        facts=_common(record),
        questions=questions,
    )


def _tested(
    qualities: Sequence[float], mean: float, spread: float | None, target: Target
) -> tuple[float | None, str | None]:
    """One-sided p-value by Student's t, or by the normal distribution where the deviation is fixed."""
    failed = sum(not math.isfinite(quality) for quality in qualities)
    if failed:
        return (
            None,
            f"{failed} of {len(qualities)} runs ended without a finite quality, so there is no mean to test",
        )
    if spread is None:
        return None, "one run has no spread; at least two are tested"
    if spread == 0:
        return (
            None,
            f"all {len(qualities)} runs have the same quality, so they have no spread to test against",
        )
    statistic = target.margin(mean) / (spread / math.sqrt(len(qualities)))
    if target.deviation is not None:
        return math.erfc(statistic / math.sqrt(2)) / 2, None  # 1 - erf would make 0 of what is small
    return student_probability(len(qualities) - 1, -statistic), None


def runs_needed(effect: float, target: Target) -> int | None:
    """Least number of runs whose test at the level has the power, if margin over deviation is `effect`; None above
    `MOST_RUNS`."""
    below, enough = 1, 2
    while _power(enough, effect, target) < target.power:
        below, enough = enough, enough * 2
        if enough > MOST_RUNS:
            return None
    while enough - below > 1:
        middle = (below + enough) // 2
        if _power(middle, effect, target) < target.power:
            below = middle
        else:
            enough = middle
    fixed = target.deviation is not None
    return 1 if fixed and _power(1, effect, target) >= target.power else enough


def _power(runs: int, effect: float, target: Target) -> float:
    if target.deviation is not None:
        normal = statistics.NormalDist()
        return normal.cdf(effect * math.sqrt(runs) - normal.inv_cdf(1 - target.level))
    return student_power(runs - 1, effect * math.sqrt(runs), target.level)


def _times(record: Record) -> list[float]:
    return [run.time for run in record.runs if run.time is not None]


def _gain(former: str, before: Sequence[float], now: Sequence[float]) -> Gain | None:
    """Welch's test of two means of times; None without a time on either side."""
    if not before or not now:
        return None
    mean = statistics.fmean(before)
    gain = Gain(
        former=former,
        shorter=mean - statistics.fmean(now),
        share=1 - statistics.fmean(now) / mean if mean else 0.0,
    )
    if min(len(before), len(now)) < 2:
        return gain
    error, freedom = welch_error(*variances_of_difference(before, now, paired=False))
    if error == 0:
        return gain
    half = student_quantile(freedom, 0.975) * error
    p = student_probability(freedom, -gain.shorter / error)
    return replace(gain, low=gain.shorter - half, high=gain.shorter + half, p=p)


def _common(record: Record) -> dict[str, str]:
    """Facts that all runs of a record state alike."""
    first, *others = record.runs
    return {
        name: said for name, said in first.facts.items() if all(run.facts.get(name) == said for run in others)
    }


def _questions(record: Record) -> Iterator[str]:
    """What the logs of one record leave open."""
    apart = []
    for name in dict.fromkeys(name for run in record.runs for name in run.facts):
        values = list(dict.fromkeys(run.facts.get(name, "none") for run in record.runs))
        if len(values) > 1:
            listed = ", ".join(values[:3]) + (f" and {len(values) - 3} more" if len(values) > 3 else "")
            apart.append(f"{name} ({listed})")
    if apart:
        yield f"the runs differ in {', '.join(apart)}; are they of one record?"
    same = Counter((run.quality, run.time) for run in record.runs if _is_telling(run.time))
    copies = sum(count - 1 for count in same.values())
    if copies:
        yield f"{copies} of the runs repeat time and quality of another to the last digit; are they copies?"
    short = sum(run.time is not None and run.time <= 0 for run in record.runs)
    if short:
        yield f"{short} of the runs took no time; what was measured?"
    untimed = sum(run.time is None for run in record.runs)
    if 0 < untimed < len(record.runs):
        yield f"{untimed} of the runs have no time; the mean is that of the others"
    if record.repeated:
        yield (
            f"{len(record.repeated)} of the files have all evaluations of another one ({record.repeated[0]}) and count "
            "once with it"
        )
    if record.without:
        yield (
            f"{len(record.without)} of the files have no quality ({record.without[0]}); did a run end before its "
            "evaluation?"
        )


def _is_telling(time: float | None) -> bool:
    """True for a time of so many digits that no two runs share it by chance."""
    return time is not None and len(f"{time:.10g}".replace(".", "").strip("0")) >= TELLING_DIGITS


def _differences(named: str, former: Record, record: Record) -> Iterator[str]:
    """What makes the times of two records hard to compare."""
    before, now = _common(former), _common(record)
    apart = [
        f"{name} ({before[name]}, now {now[name]})"
        for name in sorted(before.keys() & now.keys() - {"program", "steps"})
        if before[name] != now[name]
    ]
    if apart:
        yield f"measured on another machine or software than {named}: {', '.join(apart)}; how much of the gain is that?"
