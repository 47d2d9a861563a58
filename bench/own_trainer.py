"""Overhead of `train_bench.Benchmark` in a program with its own training loop.

Prints the time of a block and of an evaluation; what `from train_bench import Benchmark` takes beyond an empty Python,
in processor time of processes that alternate; and the ratio of a training loop of a second in NumPy with it to the same
without, by turns (ABBA) in one process, in processor time and, last, by the clock.

    python bench/own_trainer.py [ROUNDS]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from train_bench import Benchmark

EPOCHS, PASSES, STEPS, BATCH = 10, 20, 40, 256
BLOCKS = 1000
IMPORT = "from train_bench import Benchmark; Benchmark"


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    with tempfile.TemporaryDirectory() as scratch:
        ratios = []
        for number in range(-1, rounds):
            folder = Path(scratch) / str(number)
            sides = (with_it, without) if number % 2 else (without, with_it)
            used = {side: side(folder) for side in sides}
            if number >= 0:
                ratios.append(np.divide(used[with_it], used[without]))
        block, evaluation = per_call(Path(scratch) / "calls")
    print(
        f"a block takes {1e3 * block:.3f} ms, an evaluation {1e3 * evaluation:.3f} ms (medians of {BLOCKS})"
    )
    empty, loaded = imports(rounds)
    print(f"the import takes {1e3 * (loaded - empty):.1f} ms beyond an empty Python, {1e3 * empty:.1f} ms")
    for name, values in zip(("processor ratio", "ratio"), np.transpose(ratios), strict=True):
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{rounds} pairs, quartiles {low:.4f} to {high:.4f}")
        print(f"{name} {middle:.4f}")


class Training:
    """Logistic regression of noise, whose accuracy never reaches the target."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.samples = rng.normal(size=(STEPS * BATCH, 512))
        self.labels = rng.integers(0, 2, STEPS * BATCH)
        self.weights = np.zeros(512)

    def epoch(self) -> None:
        """Whole batches, some passes over the samples."""
        for first in range(0, PASSES * STEPS * BATCH, BATCH):
            rows = slice(first % (STEPS * BATCH), first % (STEPS * BATCH) + BATCH)
            error = 1 / (1 + np.exp(-self.samples[rows] @ self.weights)) - self.labels[rows]
            self.weights -= 1e-4 * (error @ self.samples[rows])

    def accuracy(self) -> float:
        """Accuracy on the data that it was trained on."""
        return float(((self.samples @ self.weights > 0) == self.labels).mean()) / 2


def now() -> np.ndarray:
    """Seconds of this process on a processor, and of the clock."""
    return np.array([time.process_time(), time.perf_counter()])


def without(_: Path) -> np.ndarray:
    """Seconds of the loop by itself, as `now`."""
    training = Training()
    start = now()
    for _epoch in range(EPOCHS):
        training.epoch()
        training.accuracy()
    return now() - start


def with_it(folder: Path) -> np.ndarray:
    """Seconds of the loop in a run, as `now`."""
    training, benchmark = Training(), ready(folder, EPOCHS)
    start = now()
    benchmark.run_start(train_samples=STEPS * BATCH, eval_samples=STEPS * BATCH)
    for mark in benchmark.blocks():
        training.epoch()
        benchmark.eval_start(samples=mark.count)
        benchmark.report(training.accuracy())
    return now() - start


def ready(folder: Path, epochs: int) -> Benchmark:
    """A run that is about to start its clock."""
    benchmark = Benchmark(
        "resnet_mini", "mini-1.0", folder=folder, until=epochs, samples_per_epoch=STEPS * BATCH, seed=1
    )
    benchmark.announce(
        global_batch_size=BATCH,
        gradient_accumulation_steps=1,
        model_bn_span=BATCH,
        opt_name="sgd",
        sgd_opt_base_learning_rate=0.1,
        sgd_opt_end_learning_rate=0.0001,
        sgd_opt_learning_rate_decay_poly_power=2,
        sgd_opt_learning_rate_decay_steps=10,
        sgd_opt_weight_decay=0.0001,
        sgd_opt_momentum=0.9,
        opt_learning_rate_warmup_epochs=0,
    )
    benchmark.init_start()
    benchmark.weights_initialized("weights")
    benchmark.init_stop()
    return benchmark


def per_call(folder: Path) -> tuple[float, float]:
    """Seconds that the calls of a block take, and those of an evaluation."""
    benchmark = ready(folder, BLOCKS)
    benchmark.run_start(train_samples=STEPS * BATCH, eval_samples=STEPS * BATCH)
    blocks, evaluations = [], []
    while not benchmark.done:
        start = time.perf_counter()
        mark = benchmark.block_start()
        begun = time.perf_counter()
        benchmark.eval_start(samples=mark.count)
        benchmark.report(0.1)
        blocks.append(begun - start)
        evaluations.append(time.perf_counter() - begun)
    return statistics.median(blocks), statistics.median(evaluations)


def imports(rounds: int) -> tuple[float, float]:
    """Seconds of an empty Python and of one that imports `Benchmark`."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def started(program: str) -> float:
        before = _of_children()
        subprocess.run([sys.executable, "-c", program], check=True, env=environ)
        return _of_children() - before

    taken: dict[str, list[float]] = {"": [], IMPORT: []}
    for _ in range(rounds + 1):
        for program, seconds in taken.items():
            seconds.append(started(program))
    empty, loaded = (statistics.median(seconds[1:]) for seconds in taken.values())
    return empty, loaded


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
