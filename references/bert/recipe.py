"""Optimizer and learning-rate schedule from the hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from train_bench.errors import RequestError
from train_bench.references.bert.config import Hyperparameters
from train_bench.references.bert.model import tensor_name
from train_bench.references.parts.lamb import LAMB


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSchedule:
    """Linear decay to 0 over T training steps, its start replaced by a warm-up of W steps, if there is one, that
    counts from step S (reference of the benchmark):

        W > 0 and t - S < W:  base max(0, t - S) / W
        else:                 base (1 - min(t, T) / T)

    Before step S the reference's rate is below zero; here it is zero.
    """

    base: float
    training_steps: int
    warmup_steps: int
    start_warmup_step: int

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        into = step - self.start_warmup_step
        if self.warmup_steps > 0 and into < self.warmup_steps:
            return self.base * max(0, into) / self.warmup_steps
        return self.base * (1.0 - min(step, self.training_steps) / self.training_steps)


def optimizer_of(model: nn.Module, hyperparameters: Hyperparameters) -> LAMB:
    """LAMB over `model`, at rate 0 until the schedule sets it. Tensors that the rules call LayerNorm or bias have
    neither decay nor adaptation."""
    named = list(model.named_parameters())
    plain = [tensor for name, tensor in named if _is_plain(tensor_name(name))]
    adapted = [tensor for name, tensor in named if not _is_plain(tensor_name(name))]
    return LAMB(
        [
            {"params": adapted},
            {"params": plain, "weight_decay": 0.0, "layer_adaptation": False},
        ],
        lr=0.0,
        betas=(hyperparameters.opt_lamb_beta_1, hyperparameters.opt_lamb_beta_2),
        epsilon=hyperparameters.opt_epsilon,
        weight_decay=hyperparameters.opt_lamb_weight_decay_rate,
    )


def _is_plain(name: str) -> bool:
    return "LayerNorm" in name or "bias" in name


def schedule_of(hyperparameters: Hyperparameters) -> StepSchedule:
    """Warm-up and decay by steps of the global batch."""
    if hyperparameters.opt_learning_rate_training_steps < 1:
        raise RequestError(
            f"opt_learning_rate_training_steps is {hyperparameters.opt_learning_rate_training_steps}; the rate "
            "decays over 1 or more steps."
        )
    return StepSchedule(
        base=hyperparameters.opt_base_learning_rate,
        training_steps=hyperparameters.opt_learning_rate_training_steps,
        warmup_steps=hyperparameters.num_warmup_steps,
        start_warmup_step=hyperparameters.start_warmup_step,
    )
