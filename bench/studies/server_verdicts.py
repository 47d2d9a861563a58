"""Verdicts of Server tests below and above the capacity: `python bench/studies/server_verdicts.py [TESTS]`.

A system that works half a millisecond for an answer is first measured offline; then half of the tests (40 by default)
have half of its rate, and half twice. Prints how many are VALID by LoadGen, and how often the trace gives the same
verdict.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

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
        seeds=rounds.load(rounds.OURS).seeds,
        latency_ns=100_000_000,
    )
    capacity = verdicts(load)[2]
    print(f"offline: {capacity:.0f} samples/s")
    server = replace(load, scenario="Server", min_queries=662, min_duration_ms=500)
    agreeing = 0
    for factor in (0.5, 2.0):
        found = [
            verdicts(
                replace(server, rate=factor * capacity, seeds={**load.seeds, "schedule_rng_seed": number})
            )
            for number in range(1, tests // 2 + 1)
        ]
        agreeing += sum(logged == trace for logged, trace, _ in found)
        valid = sum(logged == "VALID" for logged, _, _ in found)
        print(f"{factor:g} times that: {valid} of {len(found)} VALID by LoadGen")
    print(f"the trace gives LoadGen's verdict in {agreeing} of {2 * (tests // 2)}")


def verdicts(load):
    """Verdict of LoadGen, that of the trace, and the metric."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "test")
        loadgen.run_test(place, load, Working(), Batching())
        test = loadgen_log.read(place)
    trace = loadgen_verdict.recompute(test)
    return test.values["result_validity"], trace.results["result_validity"], trace.value


if __name__ == "__main__":
    main()
