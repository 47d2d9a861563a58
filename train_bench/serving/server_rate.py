"""Rate of the Server scenario: bisected with short probes, then held by all weights, and failed 5 % above."""

from __future__ import annotations

from collections.abc import Callable

from train_bench.errors import LaunchError

PROBES = 5
STEP = 1.05
"""Factor between a rate that all weights hold and one that fails."""

MAX_STEPS = 12


def bisect(capacity: float, holds: Callable[[float], bool]) -> float:
    """Highest probed rate that `holds`, between 0 and 1.2 `capacity` (samples a second), to a 32nd of it. Raises
    `LaunchError` if none does."""
    low, high, rate = 0.0, 1.2 * capacity, 0.6 * capacity
    for _ in range(PROBES):
        low, high = (rate, high) if holds(rate) else (low, rate)
        rate = (low + high) / 2
    if not low:
        raise LaunchError(
            f"No probed rate down to {high:.3g} samples/s holds the latency bound, and {capacity:.3g} samples/s were "
            "measured offline; serve on a machine without other load."
        )
    return low


def settle(rate: float, all_hold: Callable[[float], bool]) -> tuple[float, bool]:
    """Rate near `rate` that the weights of all runs hold, and whether 5 % above was tried and fails. In steps of 5 %:
    down, ever further, until all hold; then up, and halfway where one between was not tried, `MAX_STEPS` in all.
    Raises `LaunchError` if no rate is held."""
    held: int | None = None
    failing: int | None = None
    step = last = 0
    for tried in range(1, MAX_STEPS + 1):
        last = step
        if all_hold(rate * STEP**step):
            held = step
        else:
            failing = step
        if held is None:
            step -= tried
        elif failing is None:
            step = held + 1
        elif failing > held + 1:
            step = (held + failing) // 2
        else:
            break
    if held is None:
        raise LaunchError(
            f"The weights of all runs do not hold the latency bound at {rate * STEP**last:.3g} samples/s; serve on a "
            "machine without other load."
        )
    return rate * STEP**held, failing == held + 1
