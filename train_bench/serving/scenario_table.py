"""Scenarios of a result of `train-bench serve`, a row each: the metric of each weights, its mean and its interval, and
latencies as a histogram, and the energy of a million answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from train_bench.judge.energy import mean_watts
from train_bench.judge.statistics import olympic_interval, olympic_mean
from train_bench.serving.assignment import PERFORMANCE_RUN, power_log_of
from train_bench.serving.loadgen_log import PERFORMANCE, LoadGenTest
from train_bench.serving.served import Served

if TYPE_CHECKING:
    from train_bench.serving.judge import TestJudgement

BINS_OF_A_DECADE = 10


def rows(
    served: Served, tests: Sequence[LoadGenTest], judged: Sequence[TestJudgement]
) -> list[dict[str, Any]]:
    """For each scenario: metrics by run (None for one that is no positive number), mean and 95 % confidence interval
    over runs, quality, latencies, joules, and of Server the rate and those that were tried. `judged` are the
    judgements of `tests`."""
    return [_row(served, scenario, tests, judged) for scenario in served.scenarios]


def _row(
    served: Served, scenario: str, tests: Sequence[LoadGenTest], judged: Sequence[TestJudgement]
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
        "joules_per_million": _joules_per_million(chosen),
    }


def _joules_per_million(chosen: Sequence[tuple[LoadGenTest, TestJudgement]]) -> float | None:
    """Mean energy of a million answers over the tests; None if that of a test was not measured."""
    energies = []
    for test, one in chosen:
        if test.queries is None or one.trace is None:
            return None
        watts = mean_watts(power_log_of(str(test.folder)))
        if isinstance(watts, str):
            return None
        energies.append(1e6 * watts * one.trace.seconds / len(test.queries))
    return fmean(energies) if energies else None


def _histogram(tests: Sequence[LoadGenTest]) -> dict[str, list[float]] | None:
    """Edges in milliseconds, ten to a decade, and counts of samples; None without traces."""
    found = [test.queries.latency_ns for test in tests if test.queries is not None and len(test.queries)]
    if not found:
        return None
    decades = np.log10(np.maximum(np.concatenate(found), 1) / 1e6) * BINS_OF_A_DECADE
    first, last = int(np.floor(decades.min())), int(np.floor(decades.max())) + 1
    counts, edges = np.histogram(decades, bins=np.arange(first, last + 1))
    return {"edges_ms": (10 ** (edges / BINS_OF_A_DECADE)).tolist(), "counts": counts.tolist()}
