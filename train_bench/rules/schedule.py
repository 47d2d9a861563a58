"""Evaluation schedules of a round: named schedules, with their parameters in the round's table.

Some depend on the global batch size, so a schedule is for one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from train_bench.progress import EvalSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRule:
    """The allowed evaluations at one batch size: the first at one of `first`, then every `period`, in the benchmark's
    unit. A logged position counts as kept within `slack`. `start` is the logged position before any training. Where
    `any_order` is set, saved checkpoints are evaluated, a `period` apart: in any order, and not all of them. Each of
    these periods may be up to `shorter` shorter."""

    first: tuple[float, ...]
    period: float
    slack: float
    start: float = 0.0
    any_order: bool = False
    shorter: float = 0.0

    def default(self) -> EvalSchedule:
        """The schedule of a request that names none; it never ends."""
        return EvalSchedule(first=self.first[0], period=self.period, until=math.inf, start=self.start)

    def refuse(self, first: float | None, period: float | None) -> str | None:
        """Reason that a schedule is not allowed, as a sentence; None if it is."""
        if self.any_order:
            named = {"first": first, "period": period}
            wrong = next((name for name, value in named.items() if not self.is_checkpoint(value)), None)
            return f"evaluation.{wrong} is {named[wrong]}; allowed: {self}." if wrong else None
        if first is None or not any(abs(first - due) <= self.slack for due in self.first):
            allowed = ", ".join(f"{value:g}" for value in self.first)
            return f"evaluation.first is {first}; allowed: {allowed}."
        if period != self.period:
            return f"evaluation.period is {period}; allowed: only {self.period:g}."
        return None

    def is_checkpoint(self, position: float | None) -> bool:
        """True for a multiple of the period, or of one that is shorter by what is allowed."""
        if position is None or position < self.period - self.shorter - self.slack:
            return False
        periods = max(1, math.ceil((position - self.slack) / self.period))
        late = periods * self.period - position
        return late <= periods * self.shorter + self.slack

    def __str__(self) -> str:
        if self.any_order:
            return f"multiples of {self.period:g}, in any order"
        first = ", ".join(f"{value:g}" for value in sorted(self.first))
        return f"first at {first}, then every {self.period:g}"


def _every(_batch_size: int, *, period: float, first: tuple[float, ...], start: float = 0.0) -> ScheduleRule:
    """A fixed period. Fractions of an epoch are logged as iterations allow, within 2 % of the period."""
    slack = 1e-6 if period == int(period) else 0.02 * period
    return ScheduleRule(first=tuple(first), period=period, slack=slack, start=start)


def _linear(batch_size: int, *, share: float, slope: float, offset: float, quantum: int) -> ScheduleRule:
    """A share of the samples that a run is expected to need, which grow with the batch size, in whole quanta
    (BERT: training rules, evaluation frequency)."""
    period = math.floor(share * (slope * batch_size + offset) / quantum) * quantum
    return _in_samples(period, period, batch_size)


def _whole_batches(
    batch_size: int,
    *,
    period: int,
    skipped_per_batch_size: float = 0.0,
    skipped: int = 0,
    skipped_samples: int = 0,
    tokens: int = 1,
) -> ScheduleRule:
    """Every so many samples, rounded up to whole batches, without the first evaluations: none, or a number
    that grows with the batch size (Llama 2 and 3.1 405B: training rules, evaluation frequency), or falls with it
    (DeepSeek-V3: rule file of 6.1). With `tokens`, logs count these, of which a sample has as many (GPT-3)."""
    period = math.ceil(period / batch_size) * batch_size * tokens
    left_out = math.floor(skipped_per_batch_size * batch_size + skipped + skipped_samples / batch_size)
    return _in_samples((left_out + 1) * period, period, batch_size * tokens)


def _every_batch(batch_size: int, *, after_batches: float, after_samples: int) -> ScheduleRule:
    """Every batch, from so many on (Qwen3.5: rule file of 6.1)."""
    first = math.ceil(after_batches + after_samples / batch_size) * batch_size
    return _in_samples(first, batch_size, batch_size)


def _share(
    batch_size: int, *, share: float, samples: int, slope: int, offset: int, divisor: int
) -> ScheduleRule:
    """A share of the training set, rounded up to whole batches; the first at the evaluation point at or after
    (slope * batch size + offset) / divisor samples (DLRMv4: rule file of 6.1)."""
    period = max(1, math.ceil(share * samples / batch_size)) * batch_size
    first = math.ceil(math.floor((slope * batch_size + offset) / divisor) / period) * period
    return _in_samples(first, period, batch_size)


def _checkpoints(batch_size: int, *, samples: int, unit: str) -> ScheduleRule:
    """Saved checkpoints every so many samples, rounded up to whole batches, which are evaluated after the clock, in any
    order (Stable Diffusion: training rules, benchmark specific rules). Accepted entries of 5.0 round down instead
    (511,488 images at batch sizes 576 and 1536), so that both count."""
    step = 1 if unit == "step" else batch_size
    period = math.ceil(samples / batch_size) * step
    shorter = period - max(1, samples // batch_size) * step
    return ScheduleRule(first=(period,), period=period, slack=1e-6, any_order=True, shorter=shorter)


def _padded_epochs(
    batch_size: int, *, samples: int, first: int, period: int, in_samples: bool = False
) -> ScheduleRule:
    """Every so many epochs of the training set, padded to whole batches, which logs count in epochs or samples
    (3D U-Net: training rules, evaluation frequency)."""
    padded = math.ceil(samples / batch_size) * batch_size
    unit = padded if in_samples else 1
    return ScheduleRule(
        first=(math.ceil(first * samples / padded) * unit,),
        period=math.ceil(period * samples / padded) * unit,
        slack=1e-6,
    )


def _in_samples(first: float, period: float, batch_size: int) -> ScheduleRule:
    """Logged counts of samples are up to a batch late (the rules allow it), or a batch early where the log does not yet
    count the batch in flight."""
    return ScheduleRule(first=(first,), period=period, slack=2 * batch_size)


NAMED: Mapping[str, Callable[..., ScheduleRule]] = {
    "every": _every,
    "linear": _linear,
    "whole batches": _whole_batches,
    "padded epochs": _padded_epochs,
    "every batch": _every_batch,
    "share": _share,
    "checkpoints": _checkpoints,
}


def named(row: Mapping[str, Any]) -> Callable[[int], ScheduleRule]:
    """The schedule of a table's row: from the global batch size to the allowed evaluations."""
    parameters = dict(row)
    rule = NAMED[parameters.pop("name")]
    return lambda batch_size: rule(batch_size, **parameters)
