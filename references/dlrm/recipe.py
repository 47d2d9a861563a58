"""Learning rate from the hyperparameters."""

from __future__ import annotations

from train_bench.references.dlrm.config import Hyperparameters

FLOOR = 1e-7


def learning_rate(step: int, hyperparameters: Hyperparameters, *, hold_warmup_rate: bool = False) -> float:
    """The rate of optimizer step `step`, counted from 1 (reference of the benchmark): a linear warm-up below W
    steps, constant until D0, then for D steps

        max(1e-7, base ((D - (step - D0)) / D)^power)

    and its last value from there on. No decay if D is 0. With `hold_warmup_rate` and a decay, the rate from W to D0 is
    that of step W - 1, as by the reference; its program ends with an error where W is below 2 and below D0.
    """
    base, decay_steps = (
        hyperparameters.opt_base_learning_rate,
        hyperparameters.sgd_opt_learning_rate_decay_steps,
    )
    warmup = hyperparameters.opt_learning_rate_warmup_steps
    if step < warmup:
        return base * step / warmup
    if decay_steps == 0:
        return base
    if step < hyperparameters.lr_decay_start_steps:
        return base * (warmup - 1) / warmup if hold_warmup_rate and warmup > 1 else base
    done = min(step - hyperparameters.lr_decay_start_steps, decay_steps - 1)
    left = (decay_steps - done) / decay_steps
    return float(max(FLOOR, base * left**hyperparameters.sgd_opt_learning_rate_decay_poly_power))
