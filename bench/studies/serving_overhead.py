"""Overhead of the serving harness: `python bench/studies/serving_overhead.py [SECONDS]`.

A system that computes nothing answers under LoadGen's scenarios, a second each by default; latencies are those of the
trace. On two processors that others use as well, the medians tell more than the tails.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from train_bench.serving import loadgen, loadgen_log, rounds
from train_bench.serving.batching import Batching

SAMPLES = 1000
RATES = {"SingleStream": 500_000.0, "MultiStream": 200_000.0, "Server": 1000.0, "Offline": 200_000.0}


class Nothing:
    """Answers four bytes."""

    def served_samples(self):
        return SAMPLES

    def load_samples(self, indices):
        pass

    def unload_samples(self, indices):
        pass

    def answer(self, indices):
        return [b"\0\0\0\0"] * len(indices)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    seeds = rounds.load(rounds.MINI_ROUND).seeds
    print("scenario        queries   mean us   p50 us   p99 us   samples/s   processor us in answer()")
    for scenario, rate in RATES.items():
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "test")
            load = loadgen.Load(
                scenario=scenario,
                mode=loadgen_log.PERFORMANCE,
                rate=rate,
                min_duration_ms=round(1000 * seconds),
                min_queries=100,
                seeds=seeds,
                latency_ns=100_000_000,
            )
            cost = loadgen.run_test(place, load, Nothing(), Batching())
            queries = loadgen_log.read(place).queries
        ends = (queries.scheduled_ns + queries.latency_ns).max() / 1e9
        latency = queries.latency_ns / 1e3
        middle, late = np.percentile(latency, [50, 99])
        print(
            f"{scenario:<14} {len(np.unique(queries.query)):8d} {latency.mean():9.1f} {middle:8.1f} {late:8.1f} "
            f"{len(queries) / ends:11.0f} {1e6 * cost:10.2f}"
        )


if __name__ == "__main__":
    main()
