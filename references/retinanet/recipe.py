"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from train_bench.errors import RequestError
from train_bench.references.parts.optimizers import Adam
from train_bench.references.retinanet.config import Config, Hyperparameters


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """A rate that rises from the share f of `base` (reference of the benchmark), over W steps t = 0, 1, ...:

    t < W:   base (f (1 - t / W) + t / W)
    else:    base
    """

    base: float
    factor: float
    steps: int

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        risen = min(1.0, step / self.steps) if self.steps else 1.0
        return self.base * (self.factor * (1.0 - risen) + risen)


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    """Adam over the trained parameters, at rate 0 until the schedule sets it."""
    return Adam(
        [weight for weight in model.parameters() if weight.requires_grad],
        lr=0.0,
        weight_decay=hyperparameters.opt_weight_decay,
        fused=True,  # in one pass over the weights
    )


def schedule_of(config: Config) -> WarmUp:
    """Warm-up in epochs of whole batches."""
    if config.train_samples is None:
        raise RequestError("train_samples is not set; the warm-up counts epochs.")
    hyperparameters = config.hyperparameters
    epoch = config.train_samples // hyperparameters.global_batch_size
    return WarmUp(
        base=hyperparameters.opt_base_learning_rate,
        factor=hyperparameters.opt_learning_rate_warmup_factor,
        steps=int(hyperparameters.opt_learning_rate_warmup_epochs * epoch),
    )
