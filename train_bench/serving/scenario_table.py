"""Scenarios of a result of `train-bench serve`, a row each: the metric of each weights, its mean and its interval, and
latencies as a histogram, and the energy of a million answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

import numpy as np

from train_bench.judge.statistics import olympic_interval, olympic_mean
from train_bench.serving.assignment import PERFORMANCE_RUN
from train_bench.serving.judgement import TestJudgement
from train_bench.serving.loadgen_log import PERFORMANCE, LoadGenTest
from train_bench.serving.served import Served

BINS_PER_DECADE = 10


def rows(
    served: Served,
    tests: Sequence[LoadGenTest],
    judged: Sequence[TestJudgement],
    watts: Mapping[str, float | str],
) -> list[dict[str, Any]]:
    """For each scenario: metrics by run (None for one that is no positive number), mean and 95 % confidence interval
    over runs, quality, latencies, joules, and of Server the rate and those that were tried. `judged` are the
    judgements of `tests`, `watts` the mean powers of these by their names."""
    return [_row(served, scenario, tests, judged, watts) for scenario in served.scenarios]


def _row(
    served: Served,
    scenario: str,
    tests: Sequence[LoadGenTest],
    judged: Sequence[TestJudgement],
    watts: Mapping[str, float | str],
) -> dict[str, Any]:
    found = served.scenarios[scenario]
    chosen = [
        (test, one)
        for test, one in zip(tests, judged, strict=True)
        if one.file in served.tests
        and one.file.endswith(f"/{scenario}/{PERFORMANCE_RUN}")
        and one.mode == PERFORMANCE
        and one.value is not None
    ]
    values = {
        served.tests[one.file].run: one.value if one.value is not None and 0 < one.value < math.inf else None
        for _, one in chosen
    }
    numbers = [value for value in values.values() if value is not None]
    joules = {served.tests[one.file].run: _joules(test, one, watts.get(one.file)) for test, one in chosen}
    known = [value for value in joules.values() if value is not None]
    low, high = olympic_interval(numbers, 0) if len(numbers) > 1 else (None, None)
    return {
        "scenario": scenario,
        "values": {str(run): value for run, value in sorted(values.items())},
        "mean": olympic_mean(numbers, 0) if numbers else None,
        "low": low,
        "high": high,
        "rate": None if found.server is None else found.server.rate,
        "tried": None if found.server is None else [asdict(one) for one in found.server.tried],
        "quality": {run: dict(metrics) for run, metrics in found.quality.items()},
        "latencies": _histogram([test for test, _ in chosen]),
        "joules": {str(run): value for run, value in sorted(joules.items())},
        "joules_per_million": fmean(known) if known and len(known) == len(joules) else None,
    }


def _joules(test: LoadGenTest, judged: TestJudgement, watts: float | str | None) -> float | None:
    """Energy of a million answers of a test; None for one that was not measured."""
    if test.queries is None or judged.trace is None or not isinstance(watts, float):
        return None
    return 1e6 * watts * judged.trace.seconds / len(test.queries)


def _histogram(tests: Sequence[LoadGenTest]) -> dict[str, list[float]] | None:
    """Edges in milliseconds, ten to a decade, and counts of samples; None without traces."""
    found = [test.queries.latency_ns for test in tests if test.queries is not None and len(test.queries)]
    if not found:
        return None
    decades = np.log10(np.maximum(np.concatenate(found), 1) / 1e6) * BINS_PER_DECADE
    first, last = int(np.floor(decades.min())), int(np.floor(decades.max())) + 1
    counts, edges = np.histogram(decades, bins=np.arange(first, last + 1))
    return {"edges_ms": (10 ** (edges / BINS_PER_DECADE)).tolist(), "counts": counts.tolist()}
