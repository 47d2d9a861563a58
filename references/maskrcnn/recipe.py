"""From the hyperparameters to an optimizer and a learning-rate schedule."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from references.maskrcnn.config import Config

BIAS_RATE = 2.0
"""Biases learn at twice the rate and are not decayed."""


def optimizer_of(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """Momentum SGD over what is trained, at rate 0 until the schedule speaks. `rate` of a group is what its
    rate is multiplied by."""
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    biases = [weight for name, weight in trained if "bias" in name]
    weights = [weight for name, weight in trained if "bias" not in name]
    return torch.optim.SGD(
        [
            {"params": weights, "weight_decay": config.weight_decay, "rate": 1.0},
            {"params": biases, "weight_decay": 0.0, "rate": BIAS_RATE},
        ],
        lr=0.0,
        momentum=config.momentum,
        foreach=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecay:
    """Warm-up with an absolute slope, then steps (rules, table of hyperparameters):

        t < W:  max(0, base - (W - t) F)
        else:   base * decay ** (number of boundaries <= t)

    The published slope at a batch of 48 would start below zero; a rate below zero is taken as zero.
    """

    base: float
    warmup_steps: int
    warmup_factor: float
    decay: float
    boundaries: tuple[int, ...]

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        if step < self.warmup_steps:
            return max(0.0, self.base - (self.warmup_steps - step) * self.warmup_factor)
        return self.base * self.decay ** sum(step >= boundary for boundary in self.boundaries)


def schedule_of(config: Config) -> StepDecay:
    """The schedule that the hyperparameters say."""
    asked = config.hyperparameters
    return StepDecay(
        base=asked.opt_base_learning_rate,
        warmup_steps=asked.opt_learning_rate_warmup_steps,
        warmup_factor=asked.opt_learning_rate_warmup_factor,
        decay=asked.opt_learning_rate_decay_factor,
        boundaries=tuple(asked.opt_learning_rate_decay_steps),
    )
