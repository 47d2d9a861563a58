"""Learning-rate schedules as functions of the step, each with its equation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PolynomialDecay:
    """Linear warm-up from 0, then polynomial decay to `end` (reference of the image classification
    benchmark, both optimizers):

        t <= W:  base * t / W
        else:    (base - end) * (1 - min(t - W, D) / D) ** power + end

    with W = `warmup_steps` and D = `decay_steps`, in steps of the global batch. Without warm-up the
    rate is `base` at step 0.
    """

    base: float
    end: float
    power: float
    warmup_steps: int
    decay_steps: int

    def __call__(self, step: int) -> float:
        """The rate of step `step`, counted from 0."""
        if step <= self.warmup_steps and self.warmup_steps > 0:
            return self.base * step / self.warmup_steps
        if self.decay_steps == 0:
            return self.end
        past = min(step - self.warmup_steps, self.decay_steps)
        return (self.base - self.end) * (1.0 - past / self.decay_steps) ** self.power + self.end
