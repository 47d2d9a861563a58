"""Rate of the Server scenario: bisected with short probes, then held by all weights, and failed 5 % above."""

from __future__ import annotations

from collections.abc import Callable

from train_bench.errors import LaunchError

PROBES = 5
STEP = 1.05
"""Factor between a rate that all weights hold and one that fails."""

MOST_STEPS = 12


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


def settle(
    rate: float, all_hold: Callable[[float], bool], one_holds: Callable[[float], bool]
) -> tuple[float, bool]:
    """Rate near `rate` that the weights of all runs hold, and whether 5 % above was tried and fails. Steps down, ever
    further, while a run fails and up while 5 % above holds, `MOST_STEPS` times at most."""
    failing: set[int] = set()
    held: set[int] = set()
    step = 0
    for _ in range(MOST_STEPS):
        if step not in held:
            if all_hold(rate * STEP**step):
                held.add(step)
            else:
                failing.add(step)
                step -= len(failing) if not held else 1
                continue
        if step + 1 in failing:
            break
        if not one_holds(rate * STEP ** (step + 1)):
            failing.add(step + 1)
            break
        step += 1
    best = max(held, default=None)
    if best is None:
        raise LaunchError(
            f"The weights of all runs do not hold the latency bound at {rate * STEP**step:.3g} samples/s; serve on a "
            "machine without other load."
        )
    return rate * STEP**best, best + 1 in failing
