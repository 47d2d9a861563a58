"""Ranks of `train-bench serve`: the LoadGen tests of one scenario. `python -m ... PLAN.json INDEX`.

Quality comes first: all samples in accuracy mode, with the weights of every run. Then performance with the weights of
every run, then the compliance tests with those of the first one.
"""

from __future__ import annotations

import gc
import math
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import cattrs

from train_bench.core import files
from train_bench.core.job import Job
from train_bench.errors import LaunchError
from train_bench.parallel import Parallel
from train_bench.run import processors, rank, verify
from train_bench.serving import (
    loadgen,
    loadgen_log,
    loadgen_verdict,
    quality_rule,
    quantisation,
    rounds,
    server_rate,
)
from train_bench.serving.assignment import (
    ACCURACY,
    FAILING_RUN,
    PERFORMANCE_RUN,
    SERVED,
    Assignment,
    ServedWeights,
    folder_of,
)
from train_bench.serving.loadgen import SAMPLES_PER_QUERY, Load
from train_bench.serving.loadgen_log import ALL_SAMPLES, PERFORMANCE
from train_bench.serving.loadgen_verdict import Verdict
from train_bench.task import ServesSamples, Task

WARM_ANSWERS = 20
LOGGED_ANSWERS = 256
DOUBLINGS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Factors of the expected rate at which a test is repeated that ran out of queries."""

ACCURACY_RATE = 1e5
"""Rate of the accuracy tests of all scenarios, far above any: queries wait for none, and where several are on their
way, they are answered in full batches, as cheaply as can be."""

P99 = "result_99.00_percentile_latency_ns"

COMPLIANCE_LOAD = 0.8
"""Share of Server's rate at which compliance tests are taken: at the rate itself, chance decides about the bound."""

RATE_MARGIN = 1.3
"""Factor between measured and expected speed: a system that is faster than expected runs out of queries."""


def serve(job: Job, task: Task, parallel: Parallel) -> None:
    """Carry out the assignment of the options; `SERVED` in the folder of the job is its report."""
    assignment = cattrs.structure(job.work_options, Assignment)
    if not hasattr(task, "quality_of"):
        raise LaunchError(
            f"The reference {job.reference} offers no answers to serve; define the methods of ServesSamples "
            "(train_bench/task.py) in its Task."
        )
    session = _Session(job, parallel, assignment)
    try:
        session.restore(task)
        session.carry_out()
    finally:
        session.close()
    files.write_json(job.folder / SERVED, session.report)


class _Session:
    """The tests of one scenario, one after the other."""

    def __init__(self, job: Job, parallel: Parallel, assignment: Assignment) -> None:
        self._job, self._parallel, self._assignment = job, parallel, assignment
        self._rules = rounds.load(assignment.rules)
        self._model = self._rules.models[job.benchmark]
        self._scenario = assignment.scenario
        self._tests: dict[str, dict[str, Any]] = {}
        self._quantised: dict[int, str] = {}
        self.report: dict[str, Any] = {
            "scenario": self._scenario,
            "host": platform.node(),
            "tests": self._tests,
        }
        self._tasks: dict[int, ServesSamples] = {}
        self._others: list[Task] = []

    def restore(self, task: Task) -> None:
        """Restore the weights of each run: those of the first in `task`, the others in tasks of their own."""
        for weights in self._assignment.weights:
            if self._tasks:
                task = rank.new_task(self._job)
                self._others.append(task)
            self._tasks[weights.index] = self._restored(task, weights)
        gc.collect()
        gc.freeze()  # a full collection would take the time of many answers

    def close(self) -> None:
        """Free the tasks but for the first, which is the rank's."""
        for task in self._others:
            task.close()

    def _restored(self, task: Task, weights: ServedWeights) -> ServesSamples:
        facts = verify.restore(replace(self._job, seed=weights.seed), task, self._parallel, weights.files)
        found = None if facts.fingerprint is None else facts.fingerprint.evaluation.digest
        if found != weights.evaluation_digest:
            raise LaunchError(
                f"The evaluation set here has the digest {found}, and that in the log of run {weights.index} is "
                f"{weights.evaluation_digest}. Serve the data that the run was evaluated on (data_dir=)."
            )
        serving = cast(ServesSamples, task)
        self._quantised[weights.index] = quantisation.quantise(
            serving.served_model(), self._assignment.quantisation
        )
        return serving

    def carry_out(self) -> None:
        """All tests; without quality none but those of it."""
        first, *_ = self._assignment.weights
        self.report["quantised"] = {str(index): digest for index, digest in self._quantised.items()}
        self.report["quality"] = {
            str(weights.index): self._accuracy(weights) for weights in self._assignment.weights
        }
        if not all(self._good(weights) for weights in self._assignment.weights):
            return
        rate = self._expected_rate(self._tasks[first.index])
        if self._scenario == "Server":
            rate = self._server(rate)
        else:
            for weights in self._assignment.weights:
                rate = self._performance(weights, rate)
        for name in self._model.compliance:
            self._compliance(first, name, rate)

    def _good(self, weights: ServedWeights) -> bool:
        metrics = self.report["quality"][str(weights.index)]
        return quality_rule.share(self._job.target, metrics, weights.quality) >= self._rules.quality

    def _accuracy(self, weights: ServedWeights) -> dict[str, float | None]:
        folder = folder_of(self._scenario, weights.index) / ACCURACY
        task = self._tasks[weights.index]
        self._run(folder, weights, replace(self._load(ACCURACY_RATE), mode=ALL_SAMPLES))
        answers = loadgen_log.read_answers(self._assignment.folder / folder)
        count = task.served_samples()
        if answers is None or {*answers.index.tolist()} != {*range(count)}:
            raise LaunchError(f"LoadGen has not logged an answer to each of {count} samples in {folder}.")
        in_order = dict(zip(answers.index.tolist(), answers.data, strict=True))
        quality = task.quality_of([bytes.fromhex(in_order[index]) for index in range(count)])
        return {name: value if math.isfinite(value) else None for name, value in quality.metrics.items()}

    def _performance(self, weights: ServedWeights, rate: float) -> float:
        """A test of performance. Returns the rate that was enough."""
        folder = folder_of(self._scenario, weights.index) / PERFORMANCE_RUN
        return self._run_long_enough(folder, weights, self._load(rate))

    def _compliance(self, weights: ServedWeights, name: str, rate: float) -> None:
        load = self._load(rate * COMPLIANCE_LOAD if self._scenario == "Server" else rate)
        load = replace(load, same=True) if name == "TEST04" else replace(load, log_answers=LOGGED_ANSWERS)
        self._run_long_enough(folder_of(self._scenario, weights.index) / name, weights, load)

    def _run_long_enough(self, folder: Path, weights: ServedWeights, load: Load) -> float:
        """Repeat a test that ran out of queries, which is faster than expected, at twice the rate. Returns the last
        rate, which is enough unless the system outran all of them. The arrivals of Server last as long as they should
        at any rate."""
        rates = [load.rate * factor for factor in DOUBLINGS]
        for rate in rates:
            verdict = self._run(folder, weights, replace(load, rate=rate))
            if verdict is None or (verdict.min_duration_met and verdict.min_queries_met):
                return rate
        return rates[-1]

    def _server(self, capacity: float) -> float:
        """Find the rate, and leave the tests that show it where the judge looks for them."""
        first, *_ = self._assignment.weights
        runs = {weights.index: weights for weights in self._assignment.weights}
        tried: list[dict[str, Any]] = []
        kept: dict[tuple[float, int], Path] = {}

        def holds(rate: float, weights: ServedWeights, share: float) -> bool:
            folder = Path("rates", f"{len(tried)}")
            load = self._load(rate)
            load = replace(load, min_duration_ms=int(load.min_duration_ms * share))
            verdict = self._run(folder, weights, load)
            valid = verdict is not None and verdict.valid
            tried.append(
                {
                    "rate": rate,
                    "run": weights.index,
                    "valid": valid,
                    "seconds": load.min_duration_ms / 1e3,
                    "p99_ms": None if verdict is None else verdict.results[P99] / 1e6,
                }
            )
            if share == 1:
                kept[rate, weights.index] = folder
            return valid

        found = server_rate.bisect(capacity, lambda rate: holds(rate, first, 0.5))
        rate, fails_above = server_rate.settle(
            found,
            lambda rate: all(holds(rate, weights, 1) for weights in runs.values()),
        )
        for index in runs:
            self._move(kept[rate, index], folder_of("Server", index) / PERFORMANCE_RUN)
        failed = [
            one
            for one in tried
            if not one["valid"] and one["rate"] > rate and (one["rate"], one["run"]) in kept
        ]
        if fails_above:
            lowest = min(failed, key=lambda one: one["rate"])
            self._move(kept[lowest["rate"], lowest["run"]], Path(FAILING_RUN))
        for folder in Path(self._assignment.folder, "rates").iterdir():
            self._tests.pop(str(folder.relative_to(self._assignment.folder)), None)
        shutil.rmtree(self._assignment.folder / "rates")
        self.report["server"] = {"rate": rate, "fails_above": fails_above, "tried": tried}
        return rate

    def _move(self, place: Path, to: Path) -> None:
        target = self._assignment.folder / to
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._assignment.folder / place).rename(target)
        self._tests[str(to)] = self._tests.pop(str(place))

    def _load(self, rate: float) -> Load:
        return Load(
            scenario=self._scenario,
            mode=PERFORMANCE,
            rate=rate,
            min_duration_ms=self._rules.min_duration_ms,
            min_queries=self._rules.min_queries.get(self._scenario, self._model.offline_samples or 1),
            seeds=self._rules.seeds,
            latency_ns=self._model.server_latency_ns,
        )

    def _run(self, folder: Path, weights: ServedWeights, load: Load) -> Verdict | None:
        """One LoadGen test. Returns its verdict by the trace."""
        place = self._assignment.folder / folder
        shutil.rmtree(place, ignore_errors=True)
        before = processors.read_cpu_times()
        start, begin_ms = time.monotonic(), _now_ms()
        cost = loadgen.run_test(place, load, self._tasks[weights.index], self._assignment.batching)
        end_ms = _now_ms()
        used = processors.cpu_times_between(before, processors.read_cpu_times())
        self._parallel.barrier()  # a heartbeat
        self._tests[str(folder)] = {
            "run": weights.index,
            "mode": load.mode,
            "seconds": round(time.monotonic() - start, 3),
            "answer_us": round(1e6 * cost, 3),
            "window_ms": [begin_ms, end_ms],
            "processor_wait": processors.gather(self._parallel, used),
        }
        test = loadgen_log.read(place)
        return loadgen_verdict.recompute(test, test.percentile)

    def _expected_rate(self, task: ServesSamples) -> float:
        """Samples a second in the batches of this scenario or, of streams, queries, by a few answers."""
        largest = self._assignment.batching.max_batch_size
        size = {"SingleStream": 1, "MultiStream": min(SAMPLES_PER_QUERY, largest)}.get(
            self._scenario, largest
        )
        indices = [number % task.served_samples() for number in range(size)]
        task.load_samples(indices)
        seconds = _median_seconds(lambda: task.answer(indices))
        task.unload_samples(indices)
        if self._scenario == "MultiStream":
            return 2 * size / SAMPLES_PER_QUERY / seconds
        return {"SingleStream": 2.0, "Offline": RATE_MARGIN}.get(self._scenario, 1.0) * size / seconds


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _median_seconds(act: Callable[[], Any]) -> float:
    """Median duration of some calls after the first ones, for two seconds at most."""
    taken: list[float] = []
    while len(taken) < WARM_ANSWERS and (len(taken) < 3 or sum(taken) < 2):
        start = time.perf_counter()
        act()
        taken.append(time.perf_counter() - start)
    return sorted(taken[1:])[len(taken[1:]) // 2]


if __name__ == "__main__":
    rank.main(serve)
