"""Scenarios of a result of `train-bench serve`, a row each: the metric of each weights, its mean and its interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from train_bench.judge.statistics import olympic_interval
from train_bench.serving.assignment import PERFORMANCE_RUN
from train_bench.serving.loadgen_log import PERFORMANCE
from train_bench.serving.served import Served

if TYPE_CHECKING:
    from train_bench.serving.judge import TestJudgement


def rows(served: Served, tests: Sequence[TestJudgement]) -> list[dict[str, Any]]:
    """For each scenario: metrics by run, geometric mean and 95 % confidence interval over runs, the rate of Server."""
    found = []
    for scenario, told in served.scenarios.items():
        values = {
            served.tests[test.file].run: test.value
            for test in tests
            if test.file in served.tests
            and test.file.endswith(f"/{scenario}/{PERFORMANCE_RUN}")
            and test.mode == PERFORMANCE
            and test.value is not None
        }
        numbers = [*values.values()]
        low, high = olympic_interval(numbers, 0) if len(numbers) > 1 else (None, None)
        found.append(
            {
                "scenario": scenario,
                "values": {str(run): value for run, value in sorted(values.items())},
                "mean": math.exp(statistics.fmean(map(math.log, numbers))) if numbers else None,
                "low": low,
                "high": high,
                "rate": None if told.server is None else told.server.get("rate"),
                "quality": {run: dict(metrics) for run, metrics in told.quality.items()},
            }
        )
    return found
