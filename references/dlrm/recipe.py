"""Learning rate from the hyperparameters."""

from __future__ import annotations

from train_bench.references.dlrm.config import Hyperparameters

FLOOR = 1e-7


def learning_rate(step: int, hyperparameters: Hyperparameters) -> float:
    """The rate of optimizer step `step`, counted from 1 (reference of the benchmark): a linear warm-up below W
    steps, constant until D0, then for D steps

        max(1e-7, base ((D - (step - D0)) / D)^power)

    and its last value from there on. No decay if D is 0.
    """
    base, decay_steps = (
        hyperparameters.opt_base_learning_rate,
        hyperparameters.sgd_opt_learning_rate_decay_steps,
    )
    if step < hyperparameters.opt_learning_rate_warmup_steps:
        return base * step / hyperparameters.opt_learning_rate_warmup_steps
    if decay_steps == 0 or step < hyperparameters.lr_decay_start_steps:
        return base
    done = min(step - hyperparameters.lr_decay_start_steps, decay_steps - 1)
    left = (decay_steps - done) / decay_steps
    return float(max(FLOOR, base * left**hyperparameters.sgd_opt_learning_rate_decay_poly_power))
