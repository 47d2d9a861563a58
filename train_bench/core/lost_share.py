"""Share of its processor time that a machine took from the ranks of a run."""

from __future__ import annotations

from collections.abc import Mapping


def lost_share(machine: Mapping[str, float]) -> float:
    """Share of the CPU time wanted by ranks that they did not get because of others: other processes (by their part in
    what ran, because ranks and threads also wait for each other), other guests, and limits."""
    ran, waited, others = machine["ran"], machine["waited"], machine["others"]
    if ran <= 0:
        return 0.0
    of_processes = waited * others / (ran + others)
    of_guests = machine["steal"] * ran / (ran + others)
    return (of_processes + of_guests + machine["throttled"]) / (ran + waited)
