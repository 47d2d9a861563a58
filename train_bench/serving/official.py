"""Opinion of the official submission checker on a performance test (mlcommons/inference b66003e1, 2026-08-20,
tools/submission/submission_checker/checks/performance_check.py).

It asks for what was configured, not for what was met: since January 2026 it reads result_validity nowhere, and it does
not count errors that LoadGen has logged.
"""

from __future__ import annotations

from collections.abc import Iterator

from train_bench.serving.loadgen_log import LoadGenTest
from train_bench.serving.rounds import SEEDS, Round


def performance_check(test: LoadGenTest, rules: Round, model: str) -> Iterator[str]:
    """Reasons for which it refuses the log of a performance test in the closed division; none if it accepts."""
    settings, limits = test.settings, rules.models[model]
    if settings["effective_performance_sample_count"] < limits.loaded_samples:
        yield "performance_sample_count"
    for key in SEEDS:
        if settings.get(f"effective_{key}") != rules.seeds[key]:
            yield key
    if test.scenario != "Offline" and not test.values.get("early_stopping_met"):
        yield "early_stopping_met"
    bound = limits.server_latency_ns
    if test.scenario == "Server" and bound is not None and settings["effective_target_latency_ns"] > bound:
        yield "target_latency_ns"
    least = limits.offline_samples
    if test.scenario == "Offline" and least is not None and settings["effective_samples_per_query"] < least:
        yield "samples_per_query"
    if settings["effective_min_duration_ms"] < rules.min_duration_ms:
        yield "min_duration_ms"
