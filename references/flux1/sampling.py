"""Samples of a model that was trained on the mixture, beside samples of the mixture."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from train_bench.references.flux1 import mixture
from train_bench.references.flux1.config import Config
from train_bench.seeds import derive
from train_bench.task import SampleSheet

EULER_STEPS = 20
SHOWN_PER_PROMPT = 8
SAMPLES_PER_PROMPT = 64
"""Samples of each prompt: images on the sheet, and all that its figures are of."""

NO_PROMPT = "no prompt"

Velocity = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A velocity for latents (samples, channels, rows, columns), times (samples,), text and pooled prompts."""


def euler(velocity: Velocity, noise: Tensor, text: Tensor, pooled: Tensor) -> Tensor:
    """Latents: from `noise`, at time 1, against the velocity to time 0 in `EULER_STEPS` equal steps."""
    latents = noise
    for step in range(EULER_STEPS):
        times = torch.full((len(noise),), 1.0 - step / EULER_STEPS)
        latents = latents - velocity(latents, times, text, pooled) / EULER_STEPS
    return latents


def draw_sample_sheet(config: Config, velocity: Velocity) -> SampleSheet:
    """Samples of every prompt and of the empty one; the same noise in every run."""
    shape = config.model
    labels = [" ".join(reversed(prompt)) for prompt in mixture.PROMPTS] + [NO_PROMPT]
    rows = np.repeat(np.arange(len(labels)), SAMPLES_PER_PROMPT)
    rng = np.random.default_rng(derive(0, "sample sheet"))
    noise = rng.standard_normal((len(rows), *mixture.means().shape[2:]), dtype=np.float32)
    encoded = mixture.encodings(shape.text_length, shape.text_width, shape.pooled_width)
    text, pooled = (torch.from_numpy(each[rows]).bfloat16() for each in encoded)
    drawn = euler(velocity, torch.from_numpy(noise), text, pooled).double().numpy()
    any_prompt = rng.integers(len(mixture.PROMPTS), size=len(rows))
    data = mixture.images(np.where(rows < len(mixture.PROMPTS), rows, any_prompt), rng)
    of_both = [_measures(images, rows) for images in (drawn, data)]
    shown = [np.split(_pixels(images), len(labels)) for images in (drawn, data)]
    return SampleSheet(
        about=(
            f"Euler's method, {EULER_STEPS} steps from noise, {SAMPLES_PER_PROMPT} samples of each prompt, of which "
            f"{SHOWN_PER_PROMPT} are shown; beside them as many of the mixture of Gaussians that the training data "
            "are from. The figures compare each sample with the nearest of the mixture's means."
        ),
        rows={
            label: (ours[:SHOWN_PER_PROMPT], theirs[:SHOWN_PER_PROMPT])
            for label, ours, theirs in zip(labels, *shown, strict=True)
        },
        measures={name: (of_both[0][name], of_both[1][name]) for name in of_both[0]},
    )


def _measures(images: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    """Measures of images, each assigned to its nearest mean."""
    means = mixture.means()
    away = ((images[:, None, None] - means) ** 2).mean(axis=(3, 4, 5))
    nearest = away.reshape(len(images), -1).argmin(axis=1)
    prompts, forms = np.divmod(nearest, means.shape[1])
    prompted = rows < len(mixture.PROMPTS)
    return {
        "share whose nearest mean is one of their prompt": float((prompts == rows)[prompted].mean()),
        "share of bars that lie": float((forms == 0).mean()),
        "deviation from the nearest mean": math.sqrt(away.reshape(len(images), -1).min(axis=1).mean()),
    }


def _pixels(images: np.ndarray) -> np.ndarray:
    """uint8 (samples, rows, columns, 3) of (samples, 3, rows, columns): a bar's colours are whole."""
    shares = images / (2 * mixture.STRENGTH) + 0.5
    return (255 * shares.clip(0, 1)).round().astype(np.uint8).transpose(0, 2, 3, 1)
