"""Training task: until the accuracy on the evaluation set reaches the target."""

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
from .data import LENGTH, WAVES

Batch = tuple[Tensor, ...]
"""int64 (b,) labels and float32 (b, WAVES, LENGTH) waves: the arrays of the data set, by name."""


class Network(nn.Module):
    """One score for each wave."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, channels, kernel_size=5),
            nn.ReLU(),
            nn.Conv1d(channels, channels, kernel_size=5),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(channels, 1),
        )

    def forward(self, waves: Tensor) -> Tensor:
        """float32 (b, WAVES) scores of float32 (b, WAVES, LENGTH) waves."""
        scores: Tensor = self.layers(waves.view(-1, 1, LENGTH))
        return scores.view(-1, WAVES)


class Task(ArrayTask[Config]):
    """Task of this benchmark; the rest is in `train_bench/references/parts/training.py`."""

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = Network(self.config.model.channels).to(self.parallel.device)
        return model, Adam(model.parameters(), lr=self.config.hyperparameters.opt_base_learning_rate)

    def synthetic(self, samples: int) -> Batch:
        waves = torch.linspace(-1.0, 1.0, samples * WAVES * LENGTH).view(samples, WAVES, LENGTH)
        return torch.arange(samples) % WAVES, waves

    def train_step(self, batches: Iterator[Batch]) -> None:
        for batch in self.micro_batches(batches):
            labels, waves = self.on_device(batch)
            self.backward(functional.cross_entropy(self.forward(waves), labels))
        self.step()

    def measure(self, batch: Batch) -> Tensor:
        """int64 (2,): correct predictions, and their total."""
        labels, waves = self.on_device(batch)
        with self.parallel.inference():
            right = self.forward(waves).argmax(dim=1) == labels
        return torch.stack([right.sum(), torch.ones_like(labels).sum()])

    def evaluate(self) -> Quality:
        """`accuracy` over the whole evaluation set."""
        right, seen = self.total(torch.zeros(2, dtype=torch.int64)).tolist()
        return Quality(metrics={"accuracy": math.nan if self.has_diverged() else right / seen})
