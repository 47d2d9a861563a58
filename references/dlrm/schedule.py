"""The learning rate of DLRM."""

from __future__ import annotations

FLOOR = 1e-7


def learning_rate(step: int, *, base: float, warmup: int, decay_start: int, decay_steps: int) -> float:
    """Rate of optimizer step `step`, counted from 1: a linear warm-up below `warmup`, `base` until
    `decay_start`, then a square down to the floor for `decay_steps`, and its last value from there on."""
    if step < warmup:
        return base * step / warmup
    if decay_steps == 0 or step < decay_start:
        return base
    done = min(step - decay_start, decay_steps - 1)
    return float(max(FLOOR, base * ((decay_steps - done) / decay_steps) ** 2))
