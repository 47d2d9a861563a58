"""Stationarity of steps: shares of phases in the first and in the last third of a round's steps."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

MOVED = 0.02
"""Share of a step: a phase whose share moves by less is stationary."""


def thirds(rounds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Share of each phase in the first third and in the last, medians over rounds, and the change between them. It
    `changes` if it moved by `MOVED`, and in the same direction in every round; all rounds agree by chance with a
    probability of 2^(1 - rounds). Empty if a round has fewer than three steps."""
    if min((len(taken["steps"]) for taken in rounds), default=0) < 3:
        return []
    rows = []
    for phase in dict.fromkeys(
        name for taken in rounds for step in taken["steps"] for name in step["phases"]
    ):
        pairs = []
        for taken in rounds:
            steps, third = taken["steps"], len(taken["steps"]) // 3
            pairs.append((_share(steps[:third], phase), _share(steps[-third:], phase)))
        moved = [last - first for first, last in pairs]
        median = statistics.median(moved)
        rows.append(
            {
                "phase": phase,
                "first": statistics.median(first for first, _ in pairs),
                "last": statistics.median(last for _, last in pairs),
                "moved": {"median": median, "low": min(moved), "high": max(moved)},
                "changes": abs(median) >= MOVED and (min(moved) > 0 or max(moved) < 0),
            }
        )
    return rows


def _share(steps: Sequence[Mapping[str, Any]], phase: str) -> float:
    whole = float(sum(step["seconds"] for step in steps))
    return float(sum(step["phases"].get(phase, 0.0) for step in steps)) / (whole or 1.0)
