"""Learning rates of a run against the hyperparameters in its log: the warm-up took place, and no rate was above all
those named. Only our own logs have the rates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from train_bench.core.digits import significant
from train_bench.core.finite_number import finite_number
from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import Finding, finding
from train_bench.logs.log import Log

RATES = "learning_rates"

NEAR = 1e-6
"""Relative difference below which two rates are the same: those of another precision are rounded."""

LARGEST_NUMBER = 1e300
"""Larger numbers, and NaN, do not count as numbers."""

BASE, INITIAL = "base_learning_rate", "initial_learning_rate"
NAMED = ("learning_rate", "learning_rate_min")
FACTORS = ("warmup_factor", "decay_factor")
STEPS, EPOCHS, SAMPLES = "warmup_steps", "warmup_epochs", "warmup_samples"


def check_rates(case: LogCase) -> Iterator[Finding]:
    """Learning rates of the run against those announced in the log; no check without rates or a base rate."""
    record, log, rules = case.record, case.log, case.rules
    event = log.events.first(RATES)
    if event is None or event.value is None:
        return
    try:
        messages = list(_judged(event.value, _Named(log)))
    except (KeyError, TypeError, ValueError):
        messages = [f"{RATES} has an invalid value: {event.value!r:.80}."]
    for message in messages:
        yield finding(record, rules, RATES, message, line=event.line, key=RATES)


def _judged(value: Any, named: _Named) -> Iterator[str]:
    first = None if value["first"] is None else _rate(value["first"])
    highest = _rate(value["highest"])
    if first is not None and first > highest:
        raise ValueError("the first rate is above the highest")
    bases = named.of(BASE)
    if not bases:
        return
    largest = max(named.of(*NAMED).values())
    if highest > largest * (1 + NEAR) and all(factor <= 1 for factor in named.of(*FACTORS).values()):
        used, announced = significant(highest, largest, digits=6)
        yield (
            f"The highest learning rate of the run was {used}; the highest one announced in the log "
            f"is {announced}."
        )
    base = max(bases.values())
    if first is not None and first >= base * (1 - NEAR) and (warm_up := named.warm_up(base)):
        key, length = warm_up
        yield (
            f"The run announces a warm-up ({key} {length:g}), but its first learning rate was {first:g}, "
            f"not below the base rate of {base:g}."
        )


class _Named:
    """Numeric hyperparameters of a log."""

    def __init__(self, log: Log) -> None:
        numbers = ((event.key, finite_number(event.value, below=LARGEST_NUMBER)) for event in log.events)
        self._values = {key: float(number) for key, number in numbers if number is not None}

    def of(self, *endings: str) -> dict[str, float]:
        """Hyperparameters whose key has this ending."""
        return {key: value for key, value in self._values.items() if key.endswith(endings)}

    def warm_up(self, base: float) -> tuple[str, float] | None:
        """Key and value of the warm-up, if it requires a first rate below `base`; else None.

        A schedule may count from 1 and have the full rate in the last part of its warm-up (step W of W). One that
        has a single part then has no lower rate, so that at least two are required. A part is a step, except for
        schedules that also name an initial rate (3D U-Net): theirs changes between epochs, and a part is an epoch.
        By a factor of 1 or more (RetinaNet: the share at which the rate begins; SSD: the remainder at the beginning
        is 1 - 2^-factor) or with another rate that is no lower than the base, a warm-up may also begin with the full
        rate.
        """
        lengths = self.of(STEPS, EPOCHS, SAMPLES)
        if not lengths or any(factor >= 1 for factor in self.of("warmup_factor").values()):
            return None
        if any(rate >= base for key, rate in self.of(*NAMED).items() if not key.endswith(BASE)):
            return None
        key = min(lengths, key=self._parts)
        return (key, lengths[key]) if self._parts(key) >= 2 else None

    def _parts(self, key: str) -> float:
        """Number of parts, of which each may have another rate, in the warm-up of a run that begins at its step 0;
        BERT's may begin before, at `start_warmup_step`."""
        length = self._values[key]
        if key.endswith(STEPS):
            return length + min([0.0, *self.of("start_warmup_step").values()])
        batch = self._values.get("global_batch_size", math.inf)
        if key.endswith(SAMPLES):
            return length // batch
        if self.of(INITIAL) or "train_samples" not in self._values:
            return length
        return length * (self._values["train_samples"] // batch)


def _rate(value: Any) -> float:
    rate = finite_number(value, below=LARGEST_NUMBER)
    if rate is None or rate < 0:
        raise ValueError("no learning rate")
    return float(rate)
