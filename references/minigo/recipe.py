"""Optimizer, learning-rate schedule and loss from the hyperparameters."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.errors import RequestError
from train_bench.references.minigo.config import Config
from train_bench.references.parts.optimizers import SGD, one_pass

VALUE_WEIGHT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Piecewise:
    """Constant rates: the first up to and including step boundaries[0], and so on; steps are counted on from
    those of the start weights (reference of the benchmark)."""

    boundaries: tuple[int, ...]
    rates: tuple[float, ...]

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        return self.rates[bisect.bisect_left(self.boundaries, step)]


def schedule_of(config: Config) -> Piecewise:
    """The rates of the request.

    Raises RequestError where boundaries do not rise or rates do not match them.
    """
    boundaries, rates = config.hyperparameters.lr_boundaries, config.hyperparameters.lr_rates
    if len(rates) != len(boundaries) + 1 or boundaries != sorted(boundaries):
        raise RequestError(
            f"lr_boundaries are {list(boundaries)} and lr_rates {list(rates)}; boundaries rise, and there is one rate "
            "more than boundaries."
        )
    return Piecewise(boundaries=tuple(boundaries), rates=tuple(rates))


def optimizer_of(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """Momentum SGD: b := m b + g, w := w - lr b. Biases have no decay, nor have the shifts of batch norms, which
    torch calls biases; their scales have."""
    named = list(model.named_parameters())
    decayed = [weight for name, weight in named if not name.endswith("bias")]
    plain = [weight for name, weight in named if name.endswith("bias")]
    return SGD(
        [{"params": decayed, "weight_decay": config.l2}, {"params": plain, "weight_decay": 0.0}],
        lr=0.0,
        momentum=config.momentum,
        **one_pass(model),
    )


def loss_of(logits: Tensor, values: Tensor, policies: Tensor, winners: Tensor) -> Tensor:
    """Mean over positions of the cross entropy with the search's probabilities and half the squared error of the
    value. The L2 term is the optimizer's."""
    entropy = -(policies * functional.log_softmax(logits.float(), dim=1)).sum(dim=1).mean()
    return entropy + VALUE_WEIGHT * functional.mse_loss(values.float(), winners)
