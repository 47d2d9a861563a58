"""LoadGen's verdict of a performance test, computed again from the trace (loadgen/results.cc)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train_bench.serving import early_stopping
from train_bench.serving.loadgen_log import METRICS, PERFORMANCE, LoadGenTest, Queries

PERCENTILES = (0.5, 0.9, 0.95, 0.97, 0.99, 0.999)
NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Conditions of a valid test; None where the scenario has no such condition. `value` is the metric of the scenario,
    None where there is none. `percentile` is that of the bound and of latencies as metrics. `results` are the values
    that LoadGen logs, by their keys."""

    min_duration_met: bool
    min_queries_met: bool
    latency_bound_met: bool | None
    early_stopping_met: bool | None
    seconds: float
    queries: int
    value: float | None
    percentile: float
    results: Mapping[str, Any]

    @property
    def valid(self) -> bool:
        return all(
            condition is not False
            for condition in (
                self.min_duration_met,
                self.min_queries_met,
                self.latency_bound_met,
                self.early_stopping_met,
            )
        )


def recompute(test: LoadGenTest, percentile: float) -> Verdict | None:
    """The verdict of a performance test by its trace, at a percentile that the rules name; None without a sample in a
    trace, and where the bounds are on the latencies of tokens."""
    queries, settings = test.queries, test.settings
    if test.mode != PERFORMANCE or queries is None or not len(queries) or test.token_latencies:
        return None
    scenario = settings["effective_scenario"]
    count = len(np.unique(queries.query))
    latencies = np.sort(queries.latency_ns)
    per_query = np.sort(_query_latencies(queries)) if scenario == "MultiStream" else latencies
    results: dict[str, Any] = {"result_query_count": count} | _latency_results(
        latencies, "latency_ns", "latency_ns"
    )
    bound_met = stopped = None
    if scenario == "Offline":
        seconds = float(latencies[-1]) / NANOSECONDS
        value = len(latencies) / seconds if seconds else None
        results["result_samples_per_second"] = value
    elif scenario == "Server":
        seconds = float(queries.scheduled_ns.max()) / NANOSECONDS
        done = float((queries.scheduled_ns + queries.latency_ns)[-1]) / NANOSECONDS
        value = (len(latencies) - 1) / done if done else None
        bound = int(settings["effective_target_latency_ns"])
        slow = int((latencies > bound).sum())
        bound_met = bool(_at(latencies, percentile) <= bound)
        stopped = early_stopping.holds(count, slow, percentile)
        results |= {
            "result_overlatency_query_count": slow,
            "result_perf_constraints_met": bound_met,
            "result_completed_samples_per_sec": value,
        }
    else:
        last = int(queries.query.argmax())
        seconds = float(queries.scheduled_ns[last] + queries.issued_ns[last]) / NANOSECONDS
        position = early_stopping.estimate_position(count, percentile)
        stopped = position is not None
        value = None if position is None else float(per_query[position])
        results[METRICS[scenario]] = value
        if scenario == "MultiStream":
            results |= _latency_results(per_query, "query_latency_ns", "per_query_latency_ns")
    min_duration = float(settings["effective_min_duration_ms"]) / 1e3
    enough_samples = len(latencies) >= int(settings["effective_min_sample_count"])
    verdict = Verdict(
        min_duration_met=seconds >= min_duration,
        min_queries_met=count >= int(settings["effective_min_query_count"]) and enough_samples,
        latency_bound_met=bound_met,
        early_stopping_met=stopped,
        seconds=seconds,
        queries=count,
        value=value,
        percentile=percentile,
        results=results,
    )
    results |= {
        "result_validity": "VALID" if verdict.valid else "INVALID",
        "result_min_duration_met": verdict.min_duration_met,
        "result_min_queries_met": verdict.min_queries_met,
        "early_stopping_met": stopped is not False,
    }
    return verdict


def _query_latencies(queries: Queries) -> NDArray[np.int64]:
    """Latency of the last sample of each query."""
    numbers, positions = np.unique(queries.query, return_inverse=True)
    latest = np.zeros(len(numbers), dtype=np.int64)
    np.maximum.at(latest, positions, queries.latency_ns)
    return latest


def _latency_results(ascending: NDArray[np.int64], name: str, percentile_name: str) -> dict[str, Any]:
    return {
        f"result_min_{name}": int(ascending[0]),
        f"result_max_{name}": int(ascending[-1]),
        f"result_mean_{name}": int(ascending.sum()) // len(ascending),
    } | {
        f"result_{percentile * 100:.2f}_percentile_{percentile_name}": _at(ascending, percentile)
        for percentile in PERCENTILES
    }


def _at(ascending: NDArray[np.int64], percentile: float) -> int:
    """LoadGen takes the value at the rounded down position, without interpolation."""
    return int(ascending[int(len(ascending) * percentile)])
