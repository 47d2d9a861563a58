"""Time and memory of the transducer loss with its gradient, against the same cell by cell.

Log-probabilities of blank and of the next label are given; both sides find the loss and its gradient by these,
in one thread. The plain side is the textbook's loops in numpy, forward and backward variables one cell at a time.
The last line is how many times as fast the loss is.

    python bench/transducer_loss.py [FRAMES] [LABELS]
"""

from __future__ import annotations

import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import planned  # noqa: F401  (finds the package `references` before the program of that name)
import torch

from references._parts.transducer_loss import lattice

REPEATS = 11


def main() -> None:
    """Measure and print."""
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    labels = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    blank, label = np.log(rng.uniform(0.05, 0.9, (2, frames, labels + 1)))
    given = [torch.from_numpy(part).float().unsqueeze(0) for part in (blank, label)]
    sizes = (torch.tensor([frames]), torch.tensor([labels]))

    def ours() -> Any:
        return lattice(*given, *sizes)

    found, (likelihood, by_blank, by_label) = ours(), by_cells(blank, label)
    assert abs(float(found.likelihood) - likelihood) < 1e-3 * abs(likelihood)
    assert np.allclose(found.blank[0], by_blank, atol=1e-3)
    assert np.allclose(found.label[0], by_label, atol=1e-3)
    fast, slow = _seconds(ours, REPEATS), _seconds(lambda: by_cells(blank, label), 3)
    print(f"{frames} frames, {labels} labels: {1e3 * fast:.2f} ms by diagonals, {1e3 * slow:.1f} ms by cells")
    cells = frames * (labels + 1)
    print(
        f"per cell: {_bytes(ours) / cells:.0f} and {_bytes(lambda: by_cells(blank, label)) / cells:.0f} bytes"
    )
    print(f"ratio {slow / fast:.1f}")


def by_cells(blank: np.ndarray, label: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log-likelihood, and how probable blank and label are at each cell, of (T, U + 1) log-probabilities."""
    frames, columns = blank.shape
    forward, backward = np.full((2, frames + 1, columns + 1), -np.inf)
    forward[0, 0] = 0.0
    for t in range(frames):
        for u in range(columns):
            if t > 0:
                forward[t, u] = np.logaddexp(forward[t, u], forward[t - 1, u] + blank[t - 1, u])
            if u > 0:
                forward[t, u] = np.logaddexp(forward[t, u], forward[t, u - 1] + label[t, u - 1])
    backward[frames, columns - 1] = 0.0
    taken = np.zeros((2, frames, columns))
    for t in reversed(range(frames)):
        for u in reversed(range(columns)):
            stay = backward[t + 1, u] + blank[t, u]
            advance = backward[t, u + 1] + label[t, u] if u + 1 < columns else -np.inf
            backward[t, u] = np.logaddexp(stay, advance)
            taken[:, t, u] = forward[t, u] + stay, forward[t, u] + advance
    return float(backward[0, 0]), *np.exp(taken - backward[0, 0])


def _seconds(work: Callable[[], Any], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _bytes(work: Callable[[], Any]) -> float:
    """The most memory that a call holds at once: numpy's arrays as Python counts them, torch's as its profiler
    does."""
    tracemalloc.start()
    with torch.profiler.profile(profile_memory=True) as seen:
        work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held = most = 0
    for event in seen.events():
        held += event.self_cpu_memory_usage
        most = max(most, held)
    return max(most, peak)


if __name__ == "__main__":
    main()
