"""Evaluation schedules that a round allows (rules, section "Evaluation frequency")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EveryPeriod:
    """Evaluate at `first`, then every `period`, in the benchmark's unit."""

    first: float
    period: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSchedule:
    """The first evaluation may be at any of `first`; all further ones follow every `period`."""

    ruleset: str
    first: tuple[float, ...]
    period: float

    def default(self) -> EveryPeriod:
        """The schedule of someone who asks for none."""
        return EveryPeriod(first=self.first[0], period=self.period)

    def refuse(self, first: float | None, period: float | None) -> str | None:
        """Why a schedule is not allowed, as a sentence; None if it is."""
        problems = []
        if first not in self.first:
            allowed = " or ".join(f"{value:g}" for value in self.first)
            problems.append(f"the first evaluation is at {_said(first)}, allowed is {allowed}")
        if period != self.period:
            problems.append(f"the period is {_said(period)}, allowed is {self.period:g}")
        return f"Evaluation schedule ({self.ruleset}): {'; '.join(problems)}." if problems else None

    def refuse_points(self, points: Sequence[float], *, tolerance: float = 1e-3) -> str | None:
        """Why evaluations at `points`, in this order, do not keep the schedule; None if they do.
        Every point up to the last has to be there exactly once."""
        if not points:
            return None
        first = next((value for value in self.first if abs(points[0] - value) <= tolerance), None)
        if first is None:
            return self.refuse(points[0], self.period)
        for index, point in enumerate(points):
            expected = first + index * self.period
            if abs(point - expected) > tolerance:
                return (
                    f"Evaluation {index + 1} is at {point:g}; with the first at {first:g} and a period of "
                    f"{self.period:g} ({self.ruleset}) it has to be at {expected:g}."
                )
        return None


def _said(value: float | None) -> str:
    return "nowhere" if value is None else f"{value:g}"
