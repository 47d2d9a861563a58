"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

from torch import nn

from train_bench.errors import RequestError, UnknownName
from train_bench.references.llama2_70b_lora.config import Hyperparameters
from train_bench.references.parts.decoder.recipe import OPTIMIZERS, SCHEDULES, CosineSchedule
from train_bench.references.parts.optimizers import AdamW, require_optimizer


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> AdamW:
    """AdamW over the trained parameters of `model`, at rate 0 until the schedule sets it."""
    require_optimizer(hyperparameters.opt_name, OPTIMIZERS)
    return AdamW(
        [weight for weight in model.parameters() if weight.requires_grad],
        lr=0.0,
        betas=(hyperparameters.opt_adamw_beta_1, hyperparameters.opt_adamw_beta_2),
        eps=hyperparameters.opt_adamw_epsilon,
        weight_decay=hyperparameters.opt_adamw_weight_decay,
        fused=True,  # in one pass over the weights
    )


def schedule_of(hyperparameters: Hyperparameters) -> CosineSchedule:
    """Warm-up and decay by steps of the global batch, to 0 after all of them."""
    warmup, steps = (
        hyperparameters.opt_learning_rate_warmup_steps,
        hyperparameters.opt_learning_rate_training_steps,
    )
    if hyperparameters.opt_learning_rate_decay_schedule not in SCHEDULES:
        name = hyperparameters.opt_learning_rate_decay_schedule
        raise UnknownName(what="opt_learning_rate_decay_schedule", name=name, known=SCHEDULES)
    if not 0 <= warmup < steps:
        raise RequestError(
            f"opt_learning_rate_warmup_steps is {warmup}; allowed are 0 to {steps - 1}, which is less than "
            "opt_learning_rate_training_steps."
        )
    return CosineSchedule(
        base=hyperparameters.opt_base_learning_rate,
        end=0.0,
        warmup_steps=warmup,
        decay_steps=steps - warmup,
    )
