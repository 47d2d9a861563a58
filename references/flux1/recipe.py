"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from train_bench.errors import RequestError
from train_bench.references.flux1.config import Config, Hyperparameters
from train_bench.references.parts.optimizers import AdamW, require_optimizer

OPTIMIZERS = ("adamw",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantAfterWarmup:
    """Linear warm-up over W steps, base (t + 1) / W, then the base."""

    base: float
    warmup_steps: int

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        return self.base * min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else self.base


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> AdamW:
    """AdamW over `model`, at rate 0 until the schedule sets it. Every parameter decays, biases and norms too."""
    require_optimizer(hyperparameters.opt_name, OPTIMIZERS)
    return AdamW(
        model.parameters(),
        lr=0.0,
        betas=(hyperparameters.opt_adamw_beta_1, hyperparameters.opt_adamw_beta_2),
        eps=hyperparameters.opt_adamw_epsilon,
        weight_decay=hyperparameters.opt_adamw_weight_decay,
        fused=True,  # in one pass over the weights, on CPUs a sixth of the time
    )


def schedule_of(config: Config) -> ConstantAfterWarmup:
    """The rate by step. Raises `RequestError` for a negative warm-up."""
    given = config.hyperparameters
    warmup = given.opt_learning_rate_warmup_steps
    if warmup < 0:
        raise RequestError(f"opt_learning_rate_warmup_steps is {warmup}; allowed are 0 or more.")
    return ConstantAfterWarmup(base=given.opt_base_learning_rate, warmup_steps=warmup)
