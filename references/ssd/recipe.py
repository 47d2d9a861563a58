"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from train_bench.errors import RequestError
from train_bench.references.parts.optimizers import SGD, one_pass
from train_bench.references.ssd.config import Config, Hyperparameters

MOMENTUM = 0.9
DECAY = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecay:
    """Linear warm-up, then a tenth after each boundary (reference of the benchmark), for step t = 0, 1, ...
    of `batch` samples, W steps of warm-up and the factor f:

        t < W:   base - (W - t) base / (W 2^f)
        always:  times 0.1 for each boundary e with t batch >= e samples

    With `hold_warmup_rate` the rate of step W - 1 is held until the next boundary, as by the reference, which
    writes a rate before W and at boundaries only.
    """

    base: float
    warmup_steps: int
    warmup_factor: int
    boundary_epochs: tuple[int, ...]
    samples: int
    batch: int
    hold_warmup_rate: bool = False

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        passed = [
            epoch * self.samples
            for epoch in self.boundary_epochs
            if step * self.batch >= epoch * self.samples
        ]
        last = max(0, self.warmup_steps - 1)
        held = self.hold_warmup_rate and not any(boundary > last * self.batch for boundary in passed)
        left = max(0, self.warmup_steps - (min(step, last) if held else step))
        missing = left / (max(1, self.warmup_steps) * 2**self.warmup_factor)
        return self.base * (1.0 - missing) * DECAY ** len(passed)


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    """Momentum SGD over all of `model`, batch norm and biases decayed like the rest, at rate 0 until the schedule sets
    it."""
    return SGD(
        model.parameters(),
        lr=0.0,
        momentum=MOMENTUM,
        weight_decay=hyperparameters.opt_weight_decay,
        **one_pass(model),
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
        hold_warmup_rate=config.hold_warmup_rate,
    )
