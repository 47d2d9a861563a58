"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from train_bench.errors import RequestError, UnknownName
from train_bench.references.parts.decoder.config import Config, Hyperparameters
from train_bench.references.parts.optimizers import AdamW, require_optimizer

OPTIMIZERS = ("adamw",)
SCHEDULES = ("cosine with linear warmup",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineSchedule:
    """Linear warm-up over W steps, then half a cosine over D steps:

    t < W:  base (t + f) / (W + f)
    else:   end + (base - end) (1 + cos(pi min(t - W, D) / D)) / 2

    f, `warmup_from`, is 0 in Megatron's schedule, whose first step has the rate 0, and 1 in NeMo's.
    """

    base: float
    end: float
    warmup_steps: int
    decay_steps: int
    warmup_from: int = 0

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        if step < self.warmup_steps:
            return self.base * (step + self.warmup_from) / (self.warmup_steps + self.warmup_from)
        share = min(step - self.warmup_steps, self.decay_steps) / self.decay_steps
        return self.end + (self.base - self.end) * (1.0 + math.cos(math.pi * share)) / 2.0


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> AdamW:
    """AdamW over `model`, at rate 0 until the schedule sets it. Norms, biases and other single numbers have no
    decay."""
    require_optimizer(hyperparameters.opt_name, OPTIMIZERS)
    decaying: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (decaying if parameter.dim() > 1 and not name.endswith("bias") else plain).append(parameter)
    groups: list[dict[str, Any]] = [{"params": decaying}, {"params": plain, "weight_decay": 0.0}]
    return AdamW(
        groups,
        lr=0.0,
        betas=(hyperparameters.opt_adamw_beta_1, hyperparameters.opt_adamw_beta_2),
        eps=hyperparameters.opt_adamw_epsilon,
        weight_decay=hyperparameters.opt_adamw_weight_decay,
        fused=True,  # in one pass over the weights, on CPUs a sixth of the time
    )


def schedule_of(config: Config) -> CosineSchedule:
    """Warm-up and decay by steps of the global batch."""
    given = config.for_ranks(1).hyperparameters
    end, decay = given.opt_end_learning_rate, given.opt_learning_rate_decay_steps
    if given.opt_learning_rate_decay_schedule not in SCHEDULES:
        name = given.opt_learning_rate_decay_schedule
        raise UnknownName(what="opt_learning_rate_decay_schedule", name=name, known=SCHEDULES)
    counted = given.opt_learning_rate_warmup_steps if config.decay_counts_warmup else 0
    if end is None or decay is None or decay - counted < 1 or given.opt_learning_rate_warmup_steps < 0:
        raise RequestError(
            f"opt_learning_rate_warmup_steps is {given.opt_learning_rate_warmup_steps} and "
            f"opt_learning_rate_decay_steps is {decay}; allowed are 0 or more and {counted + 1} or more."
        )
    return CosineSchedule(
        base=given.opt_base_learning_rate,
        end=end,
        warmup_steps=given.opt_learning_rate_warmup_steps,
        decay_steps=decay - counted,
        warmup_from=config.WARMUP_FROM,
    )
