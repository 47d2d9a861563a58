"""Decision on a challenge: is the challenger faster than the frontier by more than the contest asks for, at its quality
and within its quantities? Or, in a contest of a fixed budget, is its quality better there, and its time not longer than
the contest allows?

Both gates are tested at the level of the challenge, and a record needs both, so that it is wrong with at most that
probability: that the challenger is not faster (or better) by the gain asked for, or its mean quality (or time) not
within the bound.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from train_bench.compare import gate
from train_bench.compare.comparison import LEAST_RUNS, logs_of, pairs_of
from train_bench.compare.design import design_of
from train_bench.compare.quality_gate import NOT_BETTER
from train_bench.judge.entry import Judgement
from train_bench.judge.finding import REVIEW
from train_bench.judge.state import MISSING_RUNS, NOT_CONVERGED
from train_bench.referee import fixed_budget
from train_bench.referee.claim import Claim
from train_bench.referee.contest import (
    Contest,
    Outside,
    beyond,
    least_difference_at,
    least_gain,
    outside_of,
    quality_claim,
)
from train_bench.referee.fixed_budget import QualityGain
from train_bench.referee.sessions import by_session
from train_bench.referee.work_bound import SLACK, WorkBound, nearest

FRONTIER, CHALLENGER = "the frontier", "the challenger"

EXPECTED = ("stop_when", "program")
"""Checks whose questions each campaign of a contest has: on its time limit, and on a program of the user's own, of
which the decision itself says who measured the quality, and what cannot be known."""

MOVED_SHARE = 0.5
"""Share of the time saved on the clock from which on time outside of it is asked about."""


UNKNOWN_BOUND = (
    "The contest has flop_per_sample, and no least time of the work: no run of the challenger has samples and a time, "
    "or the speed of the machine is not known. Is the time enough for it?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Both gates (`time` and `quality`; of a fixed budget `gained`, and `time` where the contest bounds it), reasons
    against a record, questions of the judge on either campaign, runs that were spent, and the least gain that the
    largest number of pairs shows at this spread."""

    time: gate.Gate | None
    quality: Claim | None
    gained: QualityGain | None
    reasons: Sequence[str]
    questions: Sequence[str]
    runs: int
    least_gain: float | None
    logs: Sequence[str]
    minutes: tuple[Sequence[float], Sequence[float]]
    outside: Sequence[Mapping[str, float | None]]
    measured_by: str | None
    bound: WorkBound | None

    @property
    def decided(self) -> bool:
        """True if no further pair is due."""
        return self.refuted or gate.CANNOT_TELL not in self._verdicts

    @property
    def refuted(self) -> bool:
        """True if a gate was decided against the challenger."""
        return not {gate.NOT_SLOWER, NOT_BETTER}.isdisjoint(self._verdicts)

    @property
    def _verdicts(self) -> list[str]:
        return [one.verdict for one in (self.time, self.gained) if one is not None]

    @property
    def record(self) -> bool:
        """True if the challenger made a record."""
        shown = self.quality is None or self.quality.shown
        return self.decided and not self.refuted and shown and not self.reasons

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return {
            "record": self.record,
            "time": None if self.time is None else self.time.as_json(),
            "gained": None if self.gained is None else self.gained.as_json(),
            "quality": None if self.quality is None else self.quality.as_json(),
            "reasons": list(self.reasons),
            "questions": list(self.questions),
            "runs": self.runs,
            "least_gain": self.least_gain,
            "outside": list(self.outside),
            "measured_by": self.measured_by,
            "bound": None if self.bound is None else self.bound.as_json(),
        }


def objections(frontier: Judgement, challenger: Judgement, budget: float | None = None) -> list[str]:
    """Reasons for which a campaign is not valid. That runs are missing is none: a challenge ends when it is decided.
    Nor is it at a budget that runs miss a target; that one ended at its target before is."""
    early = [
        f"{count} of the runs of {side} reached the target of the benchmark before the budget, and ended there; a "
        "contest of a fixed budget takes a benchmark whose target is out of reach"
        for side, judged in ((FRONTIER, frontier), (CHALLENGER, challenger))
        if budget is not None and (count := fixed_budget.ended_early(judged, budget))
    ]
    return early + [
        f"the campaign of {side} is not valid: {reason.removesuffix('.')}"
        for side, judged in ((FRONTIER, frontier), (CHALLENGER, challenger))
        for reason in judged.score.reasons
        if not reason.startswith(MISSING_RUNS) and not (budget is not None and NOT_CONVERGED in reason)
    ]


def questions(frontier: Judgement, challenger: Judgement) -> list[str]:
    """What the judge asks about the campaigns and their runs: each kind of question once for a side, with the number of
    further ones. What a contest brings with it is none (`EXPECTED`)."""
    asked = []
    for side, judged in ((FRONTIER, frontier), (CHALLENGER, challenger)):
        kinds: dict[str, list[str]] = {}
        for found in (*judged.findings, *(one for run in judged.verdicts for one in run.findings)):
            if found.grade == REVIEW and found.check not in EXPECTED:
                kinds.setdefault(found.check, []).append(found.message)
        for first, *others in kinds.values():
            asked.append(f"{side}: {first}" + (f" ({len(others)} more like it)" if others else ""))
    return asked


def decide(
    contest: Contest,
    frontier: Judgement,
    challenger: Judgement,
    level: float,
    core_flops: float | None = None,
) -> Decision:
    """Decide by the runs so far: the frontier is slower than the challenger by more than the gain (two one-sided tests
    after each pair, or after each session), and the rest. `core_flops` are the operations of a second that a
    processor of their host was measured to do."""
    gained = None
    of_frontier, of_challenger = frontier.score, challenger.score
    if contest.budget is not None:
        gained = fixed_budget.quality_gain(contest, frontier, challenger, level)
        of_frontier, of_challenger = (
            fixed_budget.timed(side.score, fixed_budget.at_budget(side, contest.budget, gained.metric))
            for side in (frontier, challenger)
        )
    a, b, _ = pairs_of(of_challenger, of_frontier)
    minutes = [run.minutes or 0.0 for run in b], [run.minutes or 0.0 for run in a]
    if contest.sessions > 1:
        of_frontier, of_challenger = by_session(contest, of_frontier, of_challenger)
    most = contest.pairs if contest.sessions == 1 else contest.sessions
    a, b, paired = pairs_of(of_challenger, of_frontier)
    times = [logs_of(runs, "minutes") or [] for runs in (a, b)]
    of_pairs = [other - one for one, other in zip(*times, strict=False)] if paired else []
    outside = outside_of(frontier), outside_of(challenger)
    wanted_gain: float | None = contest.gain
    if gained is not None:
        wanted_gain = None if contest.slower is None else 1 / (1 + contest.slower) - 1
    wanted = contest.flop_per_sample
    bound = None if wanted is None else nearest(challenger, frontier.location.machine, wanted, core_flops)
    impossible, asked = below_bound(bound)
    if wanted is not None and bound is None:
        asked.append(UNKNOWN_BOUND)
    return Decision(
        time=gate.against_one(
            CHALLENGER,
            of_challenger,
            FRONTIER,
            of_frontier,
            wanted_gain,
            most_pairs=most,
            level=level,
            design=design_of(challenger, frontier),
        )
        if wanted_gain is not None
        else None,
        gained=gained,
        quality=quality_claim(contest, challenger, level),
        reasons=[
            *beyond(contest, challenger),
            *impossible,
            *objections(frontier, challenger, contest.budget),
        ],
        questions=[*asked, *questions(frontier, challenger), *moved_out(*outside, *minutes)],
        runs=len(frontier.records) + len(challenger.records),
        least_gain=least_gain(of_pairs, most, level)
        if gained is None
        else _least_quality(gained, contest.pairs, level),
        logs=[str(record.sha256) for side in (frontier, challenger) for record in side.records],
        minutes=minutes,
        outside=tuple(map(_means, outside)),
        measured_by=challenger.score.measured_by,
        bound=bound,
    )


def _least_quality(gained: QualityGain, pairs: int, level: float) -> float | None:
    """Least gain in quality that the contest's pairs show at the spread of these."""
    known = [other - one for one, other in gained.pairs if one is not None and other is not None]
    return None if len(known) < 2 else least_difference_at(statistics.stdev(known), pairs, level)


def below_bound(bound: WorkBound | None) -> tuple[list[str], list[str]]:
    """Reason against a record of a time below that of its work at the peak of its accelerators; question about one
    below what its processors were measured to do, which arithmetic of fewer bits may exceed."""
    if bound is None or bound.share <= SLACK:
        return [], []
    work = f"{Path(bound.file).name} of {CHALLENGER} claims {bound.flop:.3g} operations"
    if bound.of_accelerators:
        return [
            f"{work} in {bound.seconds:.3g} s; they take {bound.least_seconds:.3g} s at the peak of its accelerators"
        ], []
    return [], [
        f"{work} in {bound.seconds:.3g} s of processors; they take {bound.least_seconds:.3g} s in fp32, as measured on "
        "this host. Was the work done?"
    ]


def moved_out(
    of_frontier: Sequence[Outside | None],
    of_challenger: Sequence[Outside | None],
    frontier_minutes: Sequence[float],
    challenger_minutes: Sequence[float],
) -> list[str]:
    """Question where the program of the challenger takes longer outside the clock, by at least half of what it saves
    on it, and by more than twice the standard error."""
    pairs = zip(of_frontier, of_challenger, strict=False)
    longer = [there.seconds - here.seconds for here, there in pairs if here is not None and there is not None]
    if len(longer) < LEAST_RUNS or not frontier_minutes or not challenger_minutes:
        return []
    extra = statistics.fmean(longer)
    saved = 60 * (statistics.fmean(frontier_minutes) - statistics.fmean(challenger_minutes))
    if not 0 < MOVED_SHARE * saved <= extra or extra <= 2 * statistics.stdev(longer) / math.sqrt(len(longer)):
        return []
    return [
        f"{CHALLENGER}: its program takes {extra:.2f} s longer before and after the clock than that of {FRONTIER}, and "
        f"{saved:.2f} s less on it; was work moved out?"
    ]


def _means(found: Sequence[Outside | None]) -> dict[str, float | None]:
    """Mean of each quantity; None where it is not known of all runs."""
    means: dict[str, float | None] = {}
    for one in fields(Outside):
        values = [None if seen is None else getattr(seen, one.name) for seen in found]
        known = [value for value in values if value is not None]
        means[one.name] = statistics.fmean(known) if known and len(known) == len(values) else None
    return means
