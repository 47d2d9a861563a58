"""Pace of systems that are not at hand, from published entries of their family."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from train_bench.errors import RequestError, TrainBenchError
from train_bench.forecast import families, samples
from train_bench.forecast.families import Family, Size, StepTimes
from train_bench.forecast.samples import Samples
from train_bench.forecast.simulate import Pace
from train_bench.judge import rcp
from train_bench.judge.published import published_entries
from train_bench.judge.published.published_entries import Entry
from train_bench.progress import Unit
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules


@cache
def expected(published_in: str, benchmark: str, batch_size: int) -> Samples | None:
    """Expected training of the reference by the points of a round such as `v1.1`; None without points."""
    try:
        rules = rules_of(published_in, benchmark)
        return samples.expect(rcp.official(rules), rules, batch_size)
    except TrainBenchError:
        return None


def needed(entry: Entry) -> float | None:
    """Samples to the target that the reference needs at an entry's batch size: until the evaluation that ends a run.
    None if no points give it."""
    if not entry.global_batch:
        return None
    of_reference = expected(entry.round, entry.benchmark, entry.global_batch)
    if of_reference is None:
        return None
    return to_the_target(of_reference) * unit(entry.round, entry.benchmark, entry.global_batch)


def to_the_target(of_reference: Samples) -> float:
    """Mean training of a run until the evaluation that ends it, in the benchmark's unit."""
    stops = samples.next_evaluation(of_reference.schedule, of_reference.values)
    return float(stops.mean()) - of_reference.schedule.start


def unit(published_in: str, benchmark: str, batch_size: int) -> float:
    """Samples per unit of a benchmark's progress; 1 if only its logs define it, so that a family's own entries have
    to."""
    rules = rules_of(published_in, benchmark)
    return float(batch_size) if rules.unit is Unit.STEP else published_entries.samples_per_unit(rules) or 1.0


def rules_of(published_in: str, benchmark: str) -> BenchmarkRules:
    """The rules of a round such as `v1.1`."""
    return ruleset.load(f"training-{published_in.removeprefix('v')}.0").benchmark(benchmark)


def family(
    known: Sequence[Family], benchmark: str, submitter: str, accelerator: str, ruleset_name: str | None
) -> Family:
    """Find the named family, in its last round unless a ruleset is given. Raises `RequestError` if there is none."""
    of_benchmark = [one for one in known if one.benchmark == benchmark]
    if ruleset_name is not None:
        number = ruleset.full_name(ruleset_name).rpartition("-")[2].rpartition(".")[0]
        of_benchmark = [one for one in of_benchmark if one.round == f"v{number}"]
    found = [one for one in of_benchmark if (one.submitter, one.accelerator) == (submitter, accelerator)]
    if not found:
        others = sorted({f"{one.submitter} with {one.accelerator} ({one.round})" for one in of_benchmark})
        raise RequestError(
            f"There are no published entries of {benchmark} by {submitter} with {accelerator} at two sizes "
            f"or more; available: {'; '.join(others) or 'none in this table and round'}."
        )
    return max(found, key=lambda one: [int(part) for part in one.round.removeprefix("v").split(".")])


def pace(
    requested: Family, times: StepTimes, fitted: Sequence[Size], accelerators: int, batch_size: int
) -> Pace:
    """Pace of a family at a size, from the step times fitted to some of its sizes. Its surplus of training over the
    reference is part of the time of a unit, and evaluations are part of the published steps."""
    mean, deviation = families.samples_beside_reference(fitted)
    steps = times.log_seconds(accelerators, batch_size)
    more = mean + deviation * np.random.default_rng(20170706).standard_normal(len(steps))
    notes = []
    if not times.smallest <= accelerators <= times.largest:
        notes.append(
            f"extrapolated: {accelerators} accelerators, fitted to {times.smallest} to {times.largest}"
        )
    nothing = np.zeros(len(steps))
    return Pace(
        opening=nothing,
        unit=np.exp(steps + more) / batch_size * unit(requested.round, requested.benchmark, batch_size),
        evaluation=nothing,
        between_runs=0.0,
        source="published",
        message=f"entries of {requested.submitter} in {requested.round} with {requested.accelerator}: {len(fitted)}",
        notes=tuple(notes),
    )
