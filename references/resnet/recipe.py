"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import nn

from train_bench.errors import RequestError
from train_bench.references.parts.lars import LARS
from train_bench.references.parts.lr_schedules import PolynomialDecay
from train_bench.references.parts.optimizers import SGD, one_pass, require_optimizer
from train_bench.references.resnet.config import Config, Hyperparameters
from train_bench.references.resnet.model import is_batch_norm

OPTIMIZERS = ("lars", "sgd")

T = TypeVar("T")


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    """LARS or momentum SGD over `model`, at rate 0 until the schedule sets it.

    LARS: batch norm and biases get neither decay nor trust ratio. SGD: every variable but those of batch
    norm has the L2 loss wd sum(w^2), whose gradient is 2 wd w, hence torch's `weight_decay` is 2 wd.
    torch.optim.SGD (listed in the rules) keeps the rate outside the momentum buffer: w := w - lr b,
    b := m b + g; the TensorFlow reference keeps it inside. The two are equal while the rate is constant,
    and differ by the factor lr(t) / lr(t-1) on the buffer while it changes.
    """
    require_optimizer(hyperparameters.opt_name, OPTIMIZERS)
    named = list(model.named_parameters())
    if hyperparameters.opt_name == "lars":
        plain = [weight for name, weight in named if is_batch_norm(name) or name.endswith("bias")]
        adapted = [weight for name, weight in named if not (is_batch_norm(name) or name.endswith("bias"))]
        return LARS(
            [{"params": adapted}, {"params": plain, "layer_adaptation": False}],
            lr=0.0,
            momentum=_given(hyperparameters.lars_opt_momentum, "lars_opt_momentum"),
            weight_decay=_given(hyperparameters.lars_opt_weight_decay, "lars_opt_weight_decay"),
            epsilon=_given(hyperparameters.lars_epsilon, "lars_epsilon"),
        )
    decay = 2.0 * _given(hyperparameters.sgd_opt_weight_decay, "sgd_opt_weight_decay")
    decayed = [weight for name, weight in named if not is_batch_norm(name)]
    plain = [weight for name, weight in named if is_batch_norm(name)]
    return SGD(
        [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}],
        lr=0.0,
        momentum=_given(hyperparameters.sgd_opt_momentum, "sgd_opt_momentum"),
        **one_pass(model),
    )


def steps_per_epoch(config: Config) -> int:
    """Steps of the global batch per epoch, rounded up as the schedule counts them."""
    return math.ceil(_given(config.train_samples, "train_samples") / config.hyperparameters.global_batch_size)


def schedule_of(config: Config) -> PolynomialDecay:
    """Warm-up and polynomial decay of the optimizer `opt_name`, in steps."""
    hyperparameters = config.hyperparameters
    name = hyperparameters.opt_name
    require_optimizer(name, OPTIMIZERS)
    warmup_key = (
        "lars_opt_learning_rate_warmup_epochs" if name == "lars" else "opt_learning_rate_warmup_epochs"
    )
    value = {
        key: _given(getattr(hyperparameters, key), key)
        for key in (
            warmup_key,
            f"{name}_opt_base_learning_rate",
            f"{name}_opt_end_learning_rate",
            f"{name}_opt_learning_rate_decay_poly_power",
            f"{name}_opt_learning_rate_decay_steps",
        )
    }
    return PolynomialDecay(
        base=value[f"{name}_opt_base_learning_rate"],
        end=value[f"{name}_opt_end_learning_rate"],
        power=value[f"{name}_opt_learning_rate_decay_poly_power"],
        warmup_steps=value[warmup_key] * steps_per_epoch(config),
        decay_steps=value[f"{name}_opt_learning_rate_decay_steps"],
    )


def _given(value: T | None, key: str) -> T:
    if value is None:
        raise RequestError(f"{key} is not set; the chosen optimizer needs it.")
    return value
