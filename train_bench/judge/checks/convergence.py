"""Reference convergence points against an entry, beyond the verdict; all for review."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from train_bench.core.digits import distinct
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import Finding, file_finding
from train_bench.judge.locate import Location
from train_bench.judge.rcp import Point, RcpVerdict
from train_bench.logs.record import RunRecord


def check_against_rcps(case: EntryCase, verdict: RcpVerdict) -> Iterator[Finding]:
    """Convergence slower than the reference's; runs with the seeds of reference runs."""
    yield from _slower(case.location, verdict)
    if case.closed:
        yield from _same_seeds(case.location, case.records, case.points)


def _slower(location: Location, verdict: RcpVerdict) -> Iterator[Finding]:
    if verdict.slower and verdict.submission_mean is not None and verdict.upper_bound is not None:
        mean, bound = distinct(verdict.submission_mean, verdict.upper_bound)
        message = (
            f"The runs converge more slowly than the reference: their mean of {mean} is above {bound}; "
            "chance alone does this in 5 % of cases."
        )
        yield file_finding(location.folder, "slower", message, value=verdict.submission_mean)


def _same_seeds(
    location: Location, records: Sequence[RunRecord], points: Sequence[Point]
) -> Iterator[Finding]:
    """Seeds of the reference runs: a point cannot test the very runs that it is made of, nor their repetition."""
    seeds = {record.seed for record in records if record.seed is not None}
    for point in points:
        shared = seeds.intersection(point.seeds)
        if shared:
            message = (
                f"{len(shared)} of the runs have seeds of the reference runs at batch size {point.batch_size}, for "
                f"example {min(shared)}; compare runs with other seeds."
            )
            yield file_finding(location.folder, "reference_seeds", message, value=len(shared))
