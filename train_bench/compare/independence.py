"""Independent runs: a copy of a log, and a further run with the same seed, are no further evidence."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.errors import RequestError
from train_bench.judge.score import ScoredRun
from train_bench.logs.log import NO_CONTENT


def digests(*runs: ScoredRun) -> set[str]:
    """Digests of the logs of runs, and of their times, as far as they are known."""
    known = {digest for run in runs for digest in (run.sha256, run.times_digest) if digest is not None}
    return known - {NO_CONTENT}


def without_copies(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """Runs without those whose log is a copy of that of an earlier one, in the same or in other bytes."""
    known: set[str] = set()
    kept = []
    for run in runs:
        if known.isdisjoint(own := digests(run)):
            kept.append(run)
        known |= own
    return kept


def without_repeated_seeds(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """Runs without those that repeat the seed of an earlier one; all of them if there is one seed only."""
    if len({run.seed for run in runs}) < 2:
        return list(runs)
    first: dict[int | None, ScoredRun] = {}
    return [run for run in runs if run.seed is None or first.setdefault(run.seed, run) is run]


def only_seed(runs: Sequence[ScoredRun]) -> int | None:
    """Seed that all of several runs have; None if there is another, or one has none."""
    seeds = {run.seed for run in runs}
    return seeds.pop() if len(runs) > 1 and len(seeds) == 1 else None


def without_common(
    name_a: str, a: Sequence[ScoredRun], name_b: str, b: Sequence[ScoredRun]
) -> tuple[list[ScoredRun], list[ScoredRun]]:
    """Runs of two entries without the logs that both have. Raises `RequestError` if one has no others: then it is
    compared with itself."""
    common = digests(*a) & digests(*b)
    rest_a = [run for run in a if common.isdisjoint(digests(run))]
    rest_b = [run for run in b if common.isdisjoint(digests(run))]
    if common and not (rest_a and rest_b):
        copies = len(a) - len(rest_a)
        raise RequestError(
            f"{name_a} and {name_b} have the same {copies} log(s), so one is a copy of the other; compare two "
            "campaigns that were run."
        )
    return rest_a, rest_b
