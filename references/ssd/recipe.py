"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from train_bench.errors import RequestError
from train_bench.references.parts.optimizers import SGD
from train_bench.references.ssd.config import Config, Hyperparameters

MOMENTUM = 0.9
DECAY = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecay:
    """Linear warm-up, then a tenth after each boundary (reference of the benchmark), for step t = 0, 1, ...
    of `batch` samples, W steps of warm-up and the factor f:

        t < W:   base - (W - t) base / (W 2^f)
        always:  times 0.1 for each boundary e with t batch >= e samples
    """

    base: float
    warmup_steps: int
    warmup_factor: int
    boundary_epochs: tuple[int, ...]
    samples: int
    batch: int

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        missing = max(0, self.warmup_steps - step) / (max(1, self.warmup_steps) * 2**self.warmup_factor)
        passed = sum(step * self.batch >= epoch * self.samples for epoch in self.boundary_epochs)
        return self.base * (1.0 - missing) * DECAY**passed


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    """Momentum SGD over all of `model`, batch norm and biases decayed like the rest, at rate 0 until the schedule sets
    it."""
    return SGD(
        model.parameters(),
        lr=0.0,
        momentum=MOMENTUM,
        weight_decay=hyperparameters.opt_weight_decay,
        foreach=True,
    )


def schedule_of(config: Config) -> StepDecay:
    """Warm-up in steps, decay in epochs of the training set."""
    if config.train_samples is None:
        raise RequestError("train_samples is not set; the learning rate counts epochs.")
    hyperparameters = config.hyperparameters
    return StepDecay(
        base=hyperparameters.opt_base_learning_rate,
        warmup_steps=hyperparameters.opt_learning_rate_warmup_steps,
        warmup_factor=hyperparameters.opt_learning_rate_warmup_factor,
        boundary_epochs=tuple(hyperparameters.opt_learning_rate_decay_boundary_epochs),
        samples=config.train_samples,
        batch=hyperparameters.global_batch_size,
    )
