"""Handwritten digits of scikit-learn under noise of ten levels: which noise is it?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from train_bench.references.parts import arrays

from .config import Config

KEPT = np.linspace(0.95, 0.05, 10)
"""Share of the variance that is still the digit's, at each level of noise."""

TRAIN_DIGITS = 1297
"""The rest, written by other people, is for evaluation."""


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Write the noisy digits; returns at once if `folder` is complete."""
    if not arrays.is_written(config, folder):
        from sklearn.datasets import load_digits

        pixels = load_digits().images.reshape(-1, 64) / 8.0 - 1.0
        sizes = {"train": config.train_samples or 0, "val": config.eval_samples or 0}
        parts = {"train": pixels[:TRAIN_DIGITS], "val": pixels[TRAIN_DIGITS:]}
        splits = {split: noisy(parts[split], rows, seed) for seed, (split, rows) in enumerate(sizes.items())}
        arrays.write(config, folder, splits)


def noisy(pixels: np.ndarray, rows: int, seed: int) -> dict[str, np.ndarray]:
    """`rows` digits, one after the other and again: `labels` float32 (rows, 64), noise of variance 1; `levels` int64
    (rows,); `seen` float32 (rows, 64), sqrt(kept) digit + sqrt(1 - kept) noise (Ho et al. 2020, equation 4)."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((rows, 64))
    levels = rng.integers(0, len(KEPT), rows)
    kept = KEPT[levels][:, None]
    seen = np.sqrt(kept) * np.resize(pixels, (rows, 64)) + np.sqrt(1.0 - kept) * noise
    return {"labels": noise.astype(np.float32), "levels": levels, "seen": seen.astype(np.float32)}
