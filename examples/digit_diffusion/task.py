"""Train until the noise in digits is told well enough."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.quality import Quality
from train_bench.references.parts.array_task import ArrayTask
from train_bench.references.parts.optimizers import Adam

from .config import Config
from .data import KEPT

Batch = tuple[Tensor, ...]
"""float32 (b, 64) noise, int64 (b,) levels, float32 (b, 64) noisy digits."""


class Denoiser(nn.Module):
    """Residual convolutions over 8 x 8 pixels, which are told the level of noise."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.level = nn.Embedding(len(KEPT), channels)
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.inner = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(3))
        self.last = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, seen: Tensor, levels: Tensor) -> Tensor:
        """float32 (b, 64), the noise."""
        hidden = self.first(seen.view(-1, 1, 8, 8)) + self.level(levels)[:, :, None, None]
        for layer in self.inner:
            hidden = hidden + layer(torch.relu(hidden))
        noise: Tensor = self.last(torch.relu(hidden))
        return noise.view(-1, 64)


class Task(ArrayTask[Config]):
    """What makes this benchmark; the rest is in `train_bench/references/parts/training.py`."""

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = Denoiser(self.config.model.channels).to(self.parallel.device)
        return model, Adam(model.parameters(), lr=self.config.hyperparameters.opt_base_learning_rate)

    def synthetic(self, samples: int) -> Batch:
        noise = torch.linspace(-1.0, 1.0, samples * 64).view(samples, 64)
        return noise, torch.arange(samples) % len(KEPT), noise + 0.5

    def train_step(self, batches: Iterator[Batch]) -> None:
        for batch in self.micro_batches(batches):
            noise, levels, seen = self.on_device(batch)
            self.backward(functional.mse_loss(self.forward(seen, levels), noise))
        self.step()

    def measure(self, batch: Batch) -> Tensor:
        """float64 (2,): squared errors, and how many pixels they are of."""
        noise, levels, seen = self.on_device(batch)
        with self.parallel.inference():
            errors = (self.forward(seen, levels) - noise).double().square()
        return torch.stack([errors.sum(), torch.ones_like(errors).sum()])

    def evaluate(self) -> Quality:
        """`noise_mse`, the mean squared error of a pixel of noise, over the whole evaluation set."""
        errors, pixels = self.total(torch.zeros(2, dtype=torch.float64)).tolist()
        return Quality(metrics={"noise_mse": math.nan if self.has_diverged() else errors / pixels})
