"""Verdicts of Server tests below and above the capacity: `python bench/studies/server_verdicts.py [TESTS]`.

A system that works half a millisecond for an answer is first measured offline; then half of the tests (40 by default)
have half of its rate, and half twice. Prints how many are VALID by LoadGen, and how often the trace gives the same
verdict; for either rate, the medians over tests of the 99th percentile, the slowest query, the longest time in which no
query came back, and the share of processor time that others took.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from train_bench.check.one_rank import OneRank
from train_bench.run import processors
from train_bench.serving import loadgen, loadgen_log, loadgen_verdict, rounds
from train_bench.serving.batching import Batching

COST_S = 5e-4


class Working:
    """Answers four bytes after half a millisecond of processor time."""

    def served_samples(self):
        return 1000

    def load_samples(self, indices):
        pass

    def unload_samples(self, indices):
        pass

    def answer(self, indices):
        end = time.thread_time() + COST_S * len(indices)
        while time.thread_time() < end:
            pass
        return [b"\0\0\0\0"] * len(indices)


def main():
    tests = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    load = loadgen.Load(
        scenario="Offline",
        mode=loadgen_log.PERFORMANCE,
        rate=1 / COST_S,
        min_duration_ms=1000,
        min_queries=1000,
        seeds=rounds.load(rounds.MINI_ROUND).seeds,
        latency_ns=100_000_000,
    )
    capacity = tested(load)["value"]
    print(f"offline: {capacity:.0f} samples/s")
    server = replace(load, scenario="Server", min_queries=662, min_duration_ms=500)
    agreeing = 0
    for factor in (0.5, 2.0):
        rate = factor * capacity
        found = [
            tested(replace(server, rate=rate, seeds={**load.seeds, "schedule_rng_seed": number}))
            for number in range(1, tests // 2 + 1)
        ]
        agreeing += sum(test["logged"] == test["trace"] for test in found)
        valid = sum(test["logged"] == "VALID" for test in found)
        p99, slowest, gap, lost = (
            statistics.median(test[key] for test in found)
            for key in ("p99_ms", "slowest_ms", "gap_ms", "lost")
        )
        print(
            f"{factor:g} times that: {valid} of {len(found)} VALID by LoadGen; medians: p99 {p99:.1f} ms, slowest "
            f"{slowest:.1f} ms, longest gap {gap:.1f} ms, {lost:.0%} of the processor time lost"
        )
        for test in found:
            if factor < 1 and test["logged"] != "VALID":
                print(
                    "  "
                    + ", ".join(
                        f"{key} {test[key]:.3g}" for key in ("p99_ms", "slowest_ms", "gap_ms", "lost")
                    )
                )
    print(f"the trace gives LoadGen's verdict in {agreeing} of {2 * (tests // 2)}")


def tested(load):
    """Verdict of LoadGen, that of the trace, the metric, latencies and gaps of answers, and the share of lost time."""
    before = processors.read_cpu_times()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "test")
        loadgen.run_test(place, load, Working(), Batching())
        used = processors.cpu_times_between(before, processors.read_cpu_times())
        test = loadgen_log.read(place)
    trace = loadgen_verdict.recompute(test)
    queries = test.queries
    done = np.sort(queries.scheduled_ns + queries.latency_ns) / 1e6
    return {
        "logged": test.values["result_validity"],
        "trace": trace.results["result_validity"],
        "value": trace.value,
        "p99_ms": trace.results["result_99.00_percentile_latency_ns"] / 1e6,
        "slowest_ms": float(queries.latency_ns.max()) / 1e6,
        "gap_ms": float(np.diff(done).max()),
        "lost": (processors.gather(OneRank(), used) or {"lost": 0.0})["lost"],
    }


if __name__ == "__main__":
    main()
