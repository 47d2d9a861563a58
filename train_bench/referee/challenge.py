"""Decision on a challenge: is the challenger faster than the frontier by more than the contest asks for, at its quality
and within its quantities?

Both gates are tested at the level of the challenge, and a record needs both, so that it is wrong with at most that
probability: that the challenger is not faster by the gain asked for, or its mean quality not beyond the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from train_bench.compare import gate
from train_bench.compare.comparison import logs_of, pairs_of
from train_bench.compare.design import design_of
from train_bench.judge.entry import Judgement
from train_bench.referee.claim import Claim
from train_bench.referee.contest import Contest, beyond, least_gain, quality_claim

FRONTIER, CHALLENGER = "the frontier", "the challenger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Both gates, reasons against a record, runs that were spent, and the least gain that the largest number of pairs
    shows at this spread."""

    time: gate.Gate
    quality: Claim | None
    reasons: Sequence[str]
    runs: int
    least_gain: float | None
    logs: Sequence[str]
    minutes: tuple[Sequence[float], Sequence[float]]
    measured_by: str | None

    @property
    def decided(self) -> bool:
        """True if no further pair is due."""
        return self.time.verdict != gate.CANNOT_TELL

    @property
    def record(self) -> bool:
        """True if the challenger made a record."""
        shown = self.quality is None or self.quality.shown
        return self.time.verdict == gate.SLOWER and shown and not self.reasons

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return {
            "record": self.record,
            "time": self.time.as_json(),
            "quality": None if self.quality is None else self.quality.as_json(),
            "reasons": list(self.reasons),
            "runs": self.runs,
            "least_gain": self.least_gain,
            "measured_by": self.measured_by,
        }


def decide(contest: Contest, frontier: Judgement, challenger: Judgement, level: float) -> Decision:
    """Decide by the runs so far: the frontier is slower than the challenger by more than the gain (two one-sided tests
    after each pair), and the rest."""
    a, b, paired = pairs_of(challenger.score, frontier.score)
    times = [logs_of(runs, "minutes") or [] for runs in (a, b)]
    of_pairs = [other - one for one, other in zip(*times, strict=False)] if paired else []
    return Decision(
        time=gate.against_one(
            CHALLENGER,
            challenger.score,
            FRONTIER,
            frontier.score,
            contest.gain,
            most_pairs=contest.pairs,
            level=level,
            design=design_of(challenger, frontier),
        ),
        quality=quality_claim(contest, challenger, level),
        reasons=beyond(contest, challenger),
        runs=len(frontier.records) + len(challenger.records),
        least_gain=least_gain(of_pairs, contest.pairs, level),
        logs=[str(record.sha256) for side in (frontier, challenger) for record in side.records],
        minutes=([run.minutes or 0.0 for run in b], [run.minutes or 0.0 for run in a]),
        measured_by=challenger.score.measured_by,
    )
