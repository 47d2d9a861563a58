"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from train_bench.errors import UnknownName
from train_bench.references.maskrcnn.config import Config
from train_bench.references.parts.optimizers import SGD, one_pass

BIAS_RATE = 2.0
"""Biases learn at twice the rate and are not decayed."""

WARMUP_METHODS = ("linear", "mlperf_linear")


def optimizer_of(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """Momentum SGD over the trained parameters, at rate 0 until the schedule sets it. `rate` of a group multiplies the
    base rate."""
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    biases = [weight for name, weight in trained if "bias" in name]
    weights = [weight for name, weight in trained if "bias" not in name]
    return SGD(
        [
            {"params": weights, "weight_decay": config.weight_decay, "rate": 1.0},
            {"params": biases, "weight_decay": 0.0, "rate": BIAS_RATE},
        ],
        lr=0.0,
        momentum=config.momentum,
        **one_pass(model),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecay:
    """Warm-up with an absolute slope F over W steps, and decay by steps:

        (factor base - max(0, W - t) F) decay ** (number of boundaries <= t)      "mlperf_linear"
        factor (base - max(0, W - t) F) decay ** (number of boundaries <= t)      "linear"

    The reference has both methods: all published convergence points were made with the first, its own run at
    a batch of 16 with the second. They differ for biases, whose `factor` is 2. The published slope at a batch
    of 48 would start below zero; a rate below zero is taken as zero.
    """

    base: float
    warmup_method: str
    warmup_steps: int
    warmup_factor: float
    decay: float
    boundaries: tuple[int, ...]

    def __call__(self, step: int, *, factor: float = 1.0) -> float:
        """The rate of step `step`, counted from 1 as in the reference."""
        missing = max(0, self.warmup_steps - step) * self.warmup_factor
        if self.warmup_method == "linear":
            missing *= factor
        decays = sum(step >= boundary for boundary in self.boundaries)
        return max(0.0, factor * self.base - missing) * self.decay**decays


def schedule_of(config: Config) -> StepDecay:
    """The schedule of the hyperparameters."""
    hyperparameters = config.hyperparameters
    if config.warmup_method not in WARMUP_METHODS:
        raise UnknownName(what="warmup_method", name=config.warmup_method, known=WARMUP_METHODS)
    return StepDecay(
        base=hyperparameters.opt_base_learning_rate,
        warmup_method=config.warmup_method,
        warmup_steps=hyperparameters.opt_learning_rate_warmup_steps,
        warmup_factor=hyperparameters.opt_learning_rate_warmup_factor,
        decay=hyperparameters.opt_learning_rate_decay_factor,
        boundaries=tuple(hyperparameters.opt_learning_rate_decay_steps),
    )
