"""Two moons by a loop in numpy. The lines with `benchmark` are what a loop gets."""

import numpy as np

from train_bench import Benchmark

TRAIN, EVAL = 2000, 1000


def moons(rng, samples):
    side, angle = rng.integers(2, size=samples), rng.uniform(0, np.pi, samples)
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * (1 - 2 * side)[:, None] + side[:, None] * [1, 0.5]
    return x + rng.normal(0, 0.1, x.shape), side


benchmark = Benchmark()
benchmark.announce(**benchmark.hyperparameters)
batch, rate = (benchmark.hyperparameters[key] for key in ("global_batch_size", "opt_base_learning_rate"))

benchmark.init_start()
rng = np.random.default_rng(benchmark.seed)
w1, b1, w2 = rng.normal(0, 1, (2, 16)), np.zeros(16), rng.normal(0, 0.1, 16)
benchmark.weights_initialized("w1", "b1", "w2")
benchmark.init_stop()

benchmark.run_start(train_samples=TRAIN, eval_samples=EVAL)  # data are read from here on
data = np.random.default_rng(0)
(x, y), (eval_x, eval_y) = moons(data, TRAIN), moons(data, EVAL)
samples = 0
for mark in benchmark.blocks():
    while samples < mark.count:
        chosen = rng.integers(TRAIN, size=batch)
        hidden = np.tanh(x[chosen] @ w1 + b1)
        error = 1 / (1 + np.exp(-hidden @ w2)) - y[chosen]
        back = np.outer(error, w2) * (1 - hidden**2)
        w2 -= rate * hidden.T @ error / batch
        w1 -= rate * x[chosen].T @ back / batch
        b1 -= rate * back.mean(0)
        samples += batch
    benchmark.eval_start(samples=samples)
    accuracy = np.mean((np.tanh(eval_x @ w1 + b1) @ w2 > 0) == eval_y)
    weights = {"layers.0.weight": w1.T, "layers.0.bias": b1, "layers.2.weight": w2, "layers.2.bias": 0.0}
    benchmark.report(accuracy=accuracy, hand_over=weights)  # which an evaluator measures, if the run has one
