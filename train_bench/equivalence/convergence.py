"""Equivalence of two finished campaigns: equally many samples to the target."""

from __future__ import annotations

from pathlib import Path

from train_bench.compare.equal_convergence import MARGIN, equal_convergence
from train_bench.core.digits import distinct
from train_bench.equivalence import compare
from train_bench.judge.tree import judge_folder
from train_bench.plan import definition, discover


def convergence(a: Path, b: Path) -> compare.Check:
    """The last rung, of two finished campaigns."""
    judged = [
        judge_folder(path, ruleset_name=None, rcp_folders=discover.rcp_folders(), changes=definition.changes)
        for path in (a, b)
    ]
    found = equal_convergence(str(a), judged[0].score, str(b), judged[1].score)
    more = f"; {found.more_runs} more seeds each would tell" if found.more_runs else ""
    if found.verdict == compare.CANNOT_TELL and found.low == found.high:
        more = "; all stopped at the same evaluation, so evaluate more often"
    ratio, low, high = (
        distinct(one, 1.0, 1 + MARGIN, 1 / (1 + MARGIN), decimals=3)[0]
        for one in (found.ratio, found.low, found.high)
    )
    of = [f"{count} of {len(one.score.runs)}" for count, one in zip(found.runs, judged, strict=True)]
    return compare.Check(
        name="convergence",
        verdict=found.verdict,
        compared=sum(found.runs),
        where=f"samples to the target {ratio} times A's, 90 % interval {low} to {high}",
        error=abs(found.ratio - 1),
        tolerance=MARGIN,
        note=f"{of[0]} and {of[1]} runs{more}",
    )
