"""Optimizer, learning-rate schedule and averaged weights from the hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from train_bench.errors import RequestError
from train_bench.references.parts.lamb import LAMB
from train_bench.references.parts.optimizers import require_optimizer
from train_bench.references.rnnt.config import Config, Hyperparameters

OPTIMIZERS = ("lamb",)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpHoldDecay:
    """Linear warm-up, a constant rate, then exponential decay between epochs (reference of the benchmark).
    For step s = 1, 2, ... of epoch E = 1, 2, ..., with n steps per epoch, W and H epochs of warm-up and hold:

        s < W n:        base (s + 1) / (W n + 1)
        s < (W + H) n:  base
        else:           base factor^(E - W - H)

    and never less than `least`.
    """

    base: float
    least: float
    factor: float
    warmup_epochs: int
    hold_epochs: int
    steps_per_epoch: int

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        number, epoch = step + 1, step // self.steps_per_epoch + 1
        warmup = self.warmup_epochs * self.steps_per_epoch
        held = self.warmup_epochs + self.hold_epochs
        rate = self.base
        if number < warmup:
            rate = self.base * (number + 1) / (warmup + 1)
        elif number >= held * self.steps_per_epoch:
            rate = self.base * self.factor ** (epoch - held)
        return max(rate, self.least)


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    """LAMB with decay and trust ratio for every tensor, at rate 0 until the schedule sets it."""
    require_optimizer(hyperparameters.opt_name, OPTIMIZERS)
    return LAMB(
        [{"params": list(model.parameters())}],
        lr=0.0,
        betas=(hyperparameters.opt_lamb_beta_1, hyperparameters.opt_lamb_beta_2),
        epsilon=hyperparameters.opt_lamb_epsilon,
        weight_decay=hyperparameters.opt_weight_decay,
    )


def schedule_of(config: Config) -> WarmUpHoldDecay:
    """The rate by epochs of `samples_per_epoch` samples."""
    hyperparameters, samples = config.hyperparameters, config.samples_per_epoch
    if not samples:
        raise RequestError(
            f"An epoch of {config.train_samples} samples has no whole batch of {hyperparameters.global_batch_size}; "
            "lower global_batch_size or set train_samples."
        )
    return WarmUpHoldDecay(
        base=hyperparameters.opt_base_learning_rate,
        least=hyperparameters.opt_lamb_learning_rate_min,
        factor=hyperparameters.opt_lamb_learning_rate_decay_poly_power,
        warmup_epochs=hyperparameters.opt_learning_rate_warmup_epochs,
        hold_epochs=hyperparameters.opt_lamb_learning_rate_hold_epochs,
        steps_per_epoch=samples // hyperparameters.global_batch_size,
    )


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module, factor: float) -> None:
    """average := factor average + (1 - factor) weights, for every tensor; no correction of the start."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1.0 - factor)
