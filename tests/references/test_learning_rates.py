"""No honest run of any benchmark contradicts the hyperparameters of its log by its learning rates, and one that leaves
out the warm-up does."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.judge.campaigns import MINI
from tests.judge.logs_of_rates import log_of, messages_of
from tests.references import configs
from tests.references.schedules import schedule_of
from tests.selection import one_of_each_reference, others_in_full
from train_bench.plan import discover

MINIGO = ("minigo", "minigo_mini")
NAMES = [name for name in discover.variants() if name not in MINIGO]
CASES = others_in_full(NAMES, one_of_each_reference(NAMES, discover.references()))
composed = functools.cache(configs.composed)
STEPS = (1, 2, 5, 100, 12_000)
"""Lengths of runs; the last is behind every warm-up."""

BY_EPOCHS = {"unet3d_mini", "unet3d_mini_bs6", "unet3d_mini_bs8", "unet3d_hippocampus"}
"""Their warm-up is one epoch of a rate that changes between epochs."""


def without_warm_up(config: Any) -> Any:
    """The configuration that the planted fault gives to the task."""
    changed = copy.deepcopy(config)
    for field in fields(config.hyperparameters):
        if field.name.endswith(("warmup_steps", "warmup_epochs")) and lengths(config).get(field.name):
            setattr(changed.hyperparameters, field.name, 0)
    return changed


def lengths(config: Any) -> Mapping[str, float]:
    """What the log names of a warm-up."""
    logged = config.hyperparameters.logged()
    return {key: value for key, value in logged.items() if key.endswith(("warmup_steps", "warmup_epochs"))}


def said_of(folder: Path, config: Any, trained_with: Any) -> list[list[str]]:
    """The findings about runs of some lengths by one configuration whose logs name another."""
    schedule = schedule_of(trained_with)
    rates = [schedule(step) for step in range(max(STEPS))]
    values = {**config.hyperparameters.logged(), "train_samples": config.train_samples}
    told = [{"first": rates[0], "highest": max(rates[:steps])} for steps in STEPS]
    return [messages_of(log_of(folder, **values, learning_rates=one), MINI) for one in told]


@pytest.mark.parametrize("name", CASES)
def test_an_honest_run_of_any_length_has_no_finding(name: str, tmp_path: Path) -> None:
    config = composed(name)
    assert said_of(tmp_path, config, config) == [[]] * len(STEPS)


@pytest.mark.parametrize("name", CASES)
def test_a_run_without_the_warm_up_that_is_named_is_found_whatever_its_length(
    name: str, tmp_path: Path
) -> None:
    """And none is where the log names no warm-up that lowers a rate."""
    config = composed(name)
    named = any(lengths(config).values()) and name not in BY_EPOCHS
    for messages in said_of(tmp_path, config, without_warm_up(config)):
        assert ["not below the base rate" in message for message in messages] == [True] * named


def test_of_one_epoch_of_a_rate_that_changes_between_epochs_a_warm_up_is_not_told() -> None:
    for name in BY_EPOCHS:
        config = composed(name)
        assert schedule_of(config)(0) == schedule_of(without_warm_up(config))(0)
