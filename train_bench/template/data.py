"""Synthetic data: groups of noisy waves, labelled with the fastest one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from train_bench.references.parts import arrays

from .config import Config

WAVES, LENGTH = 4, 32
"""Waves in a group, and values of each."""

SLOWEST, FASTEST = 0.3, 1.5
"""Radians per step."""

NOISE = 0.3


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Prepare the data. Called before every campaign: returns at once if `folder` is complete. `source` is the user's
    folder of distributed data sets."""
    if not arrays.is_written(config, folder):
        sizes = {"train": config.train_samples or 0, "val": config.eval_samples or 0}
        splits = {split: waves(samples, seed) for seed, (split, samples) in enumerate(sizes.items())}
        arrays.write(config, folder, splits)


def waves(samples: int, seed: int) -> dict[str, np.ndarray]:
    """`labels` int64 (n,), which wave is the fastest; `waves` float32 (n, WAVES, LENGTH)."""
    rng = np.random.default_rng(seed)
    speeds = rng.uniform(SLOWEST, FASTEST, (samples, WAVES, 1))
    phases = rng.uniform(0.0, 2 * np.pi, (samples, WAVES, 1))
    noise = rng.normal(0.0, NOISE, (samples, WAVES, LENGTH))
    values = np.sin(speeds * np.arange(LENGTH) + phases) + noise
    return {"labels": speeds[:, :, 0].argmax(axis=1), "waves": values.astype(np.float32)}
