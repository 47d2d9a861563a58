"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from train_bench.errors import RequestError
from train_bench.references.parts.optimizers import SGD, one_pass, require_optimizer
from train_bench.references.unet3d.config import Config, Hyperparameters

OPTIMIZERS = ("sgd",)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSchedule:
    """Rates that change between epochs e = 1, 2, ... (reference of the benchmark):

        e <= W:  initial + (base - initial) e / W
        else:    base factor^n, n the number of boundaries before e

    Boundaries within the warm-up take effect after it; the reference forgets them. No published
    configuration has one.
    """

    initial: float
    base: float
    warmup_epochs: int
    boundary_epochs: tuple[int, ...]
    factor: float
    steps_per_epoch: int

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        epoch = step // self.steps_per_epoch + 1
        if epoch <= self.warmup_epochs:
            return self.initial + (self.base - self.initial) * epoch / self.warmup_epochs
        return self.base * self.factor ** sum(boundary < epoch for boundary in self.boundary_epochs)


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum over `model`, at rate 0 until the schedule sets it."""
    require_optimizer(hyperparameters.opt_name, OPTIMIZERS)
    return SGD(
        model.parameters(),
        lr=0.0,
        momentum=hyperparameters.opt_momentum,
        weight_decay=hyperparameters.opt_weight_decay,
        nesterov=hyperparameters.opt_momentum > 0,
        **one_pass(model),
    )


def schedule_of(config: Config) -> EpochSchedule:
    """Warm-up and decay by epochs of `samples_per_epoch` samples."""
    if config.samples_per_epoch is None:
        raise RequestError("train_samples is not set; the learning rate counts epochs.")
    hyperparameters = config.hyperparameters
    return EpochSchedule(
        initial=hyperparameters.opt_initial_learning_rate,
        base=hyperparameters.opt_base_learning_rate,
        warmup_epochs=hyperparameters.opt_learning_rate_warmup_epochs,
        boundary_epochs=tuple(hyperparameters.opt_learning_rate_decay_boundary_epochs),
        factor=hyperparameters.opt_learning_rate_decay_factor,
        steps_per_epoch=config.samples_per_epoch // hyperparameters.global_batch_size,
    )
