"""Sessions of a challenge: hosts or days over which its pairs of runs are spread, an equal number each.

What a host or a day does to one side alone is in all pairs of its session, so their spread does not show it. Each
session is then one observation: the mean of its pairs' logarithms. With equal numbers of pairs, the t-test on these
means is that of a random effect of the session (the mean square between sessions, with one degree of freedom fewer than
there are sessions), whatever the variances between and within are. As of single runs, a variance is not believed to be
below what an evaluation period leaves open: that of a mean of pairs, where sessions end at the same evaluations.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from train_bench.compare.comparison import floors_of, has_time
from train_bench.judge.score import Score, ScoredRun
from train_bench.referee.contest import Contest


def by_session(contest: Contest, frontier: Score, challenger: Score) -> tuple[Score, Score]:
    """Both scores with a run for each session that is complete, of the geometric mean time of its pairs. A session in
    which a run of the challenger failed is a failed run; a pair whose frontier failed is left out."""
    each = contest.pairs // contest.sessions
    means: tuple[list[ScoredRun], list[ScoredRun]] = ([], [])
    for session in range(contest.sessions):
        places = range(session * each, (session + 1) * each)
        sides = [_runs(score, places) for score in (frontier, challenger)]
        if any(len(runs) < each for runs in sides):
            break
        kept = [at for at in range(each) if has_time(sides[0][at])]
        good = all(map(has_time, sides[1]))
        floor = (
            floors_of(*([runs[at] for at in kept] for runs in sides), paired=True)[0]
            if kept and good
            else 0.0
        )
        for made, runs in zip(means, sides, strict=True):
            whole = bool(kept) and (runs is sides[0] or good)
            made.append(_mean(runs, kept, session, floor, whole=whole))
    return replace(frontier, runs=tuple(means[0])), replace(challenger, runs=tuple(means[1]))


def _runs(score: Score, places: Sequence[int]) -> list[ScoredRun]:
    return sorted((run for run in score.runs if run.index in places), key=lambda run: run.index)


def _mean(
    runs: Sequence[ScoredRun], kept: Sequence[int], session: int, floor: float, *, whole: bool
) -> ScoredRun:
    """The run that stands for a session. Its evaluation period is the one that has half of the `floor` of a pair over
    the number of pairs as its own."""
    times = [math.log(runs[at].minutes or 1.0) for at in kept] if whole else []
    minutes = math.exp(statistics.fmean(times)) if times else None
    return replace(
        runs[0],
        index=session,
        seed=session,
        minutes=minutes,
        status="success" if times else "aborted",
        converged=bool(times),
        compliant=bool(times),
        samples=None,
        samples_per_second=None,
        evaluation_minutes=None if minutes is None else minutes * math.sqrt(12 * floor / 2 / len(times)),
        counted=True,
        dropped=False,
        sha256=None,
        times_digest=None,
    )
