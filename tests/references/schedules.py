"""The learning rate of every step by the recipe of a reference, without a network: `schedule_of(config)(step)`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from train_bench.references.parts.decoder import config as decoder
from train_bench.references.parts.decoder import recipe as of_decoders


def schedule_of(config: Any) -> Callable[[int], float]:
    """The rate of step 0, 1, ... of a configuration, as its task asks for it."""
    hyperparameters = config.hyperparameters
    if config.reference in ("dlrm_dcnv2", "minigo"):  # a constant rate; rates by steps without a warm-up
        return lambda step: hyperparameters.opt_base_learning_rate
    if isinstance(config, decoder.Config):
        return of_decoders.schedule_of(config)
    recipe = importlib.import_module(f"train_bench.references.{config.reference}.recipe")
    if config.reference == "dlrm":
        held = config.hold_warmup_rate
        return lambda step: recipe.learning_rate(step + 1, hyperparameters, hold_warmup_rate=held)
    asked = hyperparameters if config.reference in ("bert", "llama2_70b_lora") else config
    schedule: Callable[[int], float] = recipe.schedule_of(asked)
    return (lambda step: schedule(step + 1)) if config.reference == "maskrcnn" else schedule
