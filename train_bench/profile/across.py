"""Imbalance across ranks: last arrivals, and the share of communication that is waiting for them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Raw = Mapping[str, Any]


def ranks(measured: Sequence[Raw]) -> dict[str, Any]:
    """A row for each rank, and the seconds of all steps that a rank waited for the last one, mean over ranks.

    Clocks of ranks on one host are the same; those of others are set by the barrier before each round.
    """
    same_clock = len({one["host"] for one in measured}) == 1
    last = [0] * len(measured)
    late: list[list[float]] = [[] for _ in measured]
    waited, lengths = 0.0, []
    for taken in zip(*(one["rounds"][1] for one in measured), strict=True):
        zero = [0.0 if same_clock else one["steps"][0]["began"] for one in taken]
        for steps in zip(*(one["steps"] for one in taken), strict=False):
            if any(step["arrived"] is None for step in steps) or len(steps) < 2:
                continue
            arrivals = [step["arrived"] - at for step, at in zip(steps, zero, strict=True)]
            latest = max(arrivals)
            last[arrivals.index(latest)] += 1
            lengths.append(statistics.fmean(step["seconds"] for step in steps))
            for rank, arrived in enumerate(arrivals):
                others = [one for number, one in enumerate(arrivals) if number != rank]
                late[rank].append(max(0.0, arrived - statistics.median(others)))
                exposed = steps[rank]["phases"].get("communication", 0.0)
                waited += min(latest - arrived, exposed) / len(measured)
    counted = max(1, sum(last))
    return {
        "waited_seconds": waited,
        "steps_seen": sum(last),
        "ranks": [
            {
                "rank": one["rank"],
                "host": one["host"],
                "last": last[number] / counted,
                "late_seconds": statistics.fmean(late[number]) if late[number] else 0.0,
                "late_share": statistics.fmean(late[number]) / statistics.fmean(lengths) if lengths else 0.0,
                "computing_seconds": _mean_of(one, ("forward", "backward")),
                "input_seconds": _mean_of(one, ("input",)),
                "thread_used_processor": _used(one),
            }
            for number, one in enumerate(measured)
        ],
    }


def _mean_of(one: Raw, phases: Sequence[str]) -> float:
    steps = [step for taken in one["rounds"][1] for step in taken["steps"]]
    if not steps:
        return 0.0
    return float(sum(step["phases"].get(phase, 0.0) for step in steps for phase in phases) / len(steps))


def _used(one: Raw) -> float | None:
    """Share of computing time in which the training thread had a processor."""
    steps = [step for taken in one["rounds"][1] for step in taken["steps"]]
    passed = sum(step["phases"].get(phase, 0.0) for step in steps for phase in ("forward", "backward"))
    used = sum(step["processor"].get(phase, 0.0) for step in steps for phase in ("forward", "backward"))
    return used / passed if passed else None
