"""What a rank's training thread was doing, as a list of moments: each ends what was going on before it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

STEP_ENDS = "step ends"


@dataclass(slots=True, kw_only=True)
class Step:
    """One step of the global batch, from the end of the one before. Seconds, of the clock and of the training thread's
    processor, by phase. `arrived` is when the last gradient was there, from which on a rank can only wait for others;
    None where nobody is waited for."""

    began: float
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)
    arrived: float | None = None


class Timeline:
    """Moments of one stretch of training. On a GPU they are events of its stream, so that what it waits for counts and
    not what has been enqueued; nothing waits for them before the stretch is over."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._moments: list[tuple[str, Any, float]] = []
        self.arrivals: set[int] = set()
        """Which moments were the last gradients'."""

    def begin(self) -> None:
        """The stretch begins; the device is idle."""
        self._origin = time.perf_counter()
        self.charge("")

    def charge(self, phase: str) -> None:
        """What has passed since the moment before was `phase`."""
        self._moments.append((phase, self._moment(), time.thread_time()))

    def arrive(self) -> None:
        """All gradients of this rank are there: what has passed was its backward pass."""
        self.arrivals.add(len(self._moments))
        self.charge("backward")

    def end_step(self) -> None:
        """A step has ended with the moment before."""
        self._moments.append((STEP_ENDS, *self._moments[-1][1:]))

    def _moment(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def steps(self) -> tuple[list[Step], Step]:
        """The steps of the stretch, and what came after the last one."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        steps: list[Step] = []
        _, first, processor = self._moments[0]
        at = self._origin
        step = Step(began=at)
        for number, (phase, moment, used) in enumerate(self._moments[1:], start=1):
            if phase == STEP_ENDS:
                steps.append(step)
                step = Step(began=at)
                continue
            now = self._origin + self._between(first, moment)
            step.seconds += now - at
            step.phases[phase] = step.phases.get(phase, 0.0) + now - at
            step.processor[phase] = step.processor.get(phase, 0.0) + used - processor
            if number in self.arrivals:
                step.arrived = now
            at, processor = now, used
        return steps, step

    def _between(self, first: Any, moment: Any) -> float:
        return float(first.elapsed_time(moment) / 1000 if self._device.type == "cuda" else moment - first)
