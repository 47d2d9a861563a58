"""What a rank's training thread was doing, as a list of moments: each ends what was going on before it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

import torch

STEP_ENDS = "step ends"


@dataclass(slots=True, kw_only=True)
class Step:
    """One step of the global batch, from the end of the one before. Seconds, of the clock and of the training thread's
    processor, and those that the thread waited for one that others had, by phase. `arrived` is when the last gradient
    was there, from which on a rank can only wait for others; None where nobody is waited for."""

    began: float
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    arrived: float | None = None


class Timeline:
    """Moments of one stretch of training. On a GPU they are events of its stream, so that what it waits for counts and
    not what has been enqueued; nothing waits for them before the stretch is over."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._moments: list[tuple[str, Any, float, float]] = []
        self.arrivals: set[int] = set()
        """Which moments were the last gradients'."""

    def begin(self) -> None:
        """The stretch begins, on this thread; the device is idle."""
        self._schedule = _open_schedule()
        self._origin = time.perf_counter()
        self.charge("")

    def charge(self, phase: str) -> None:
        """What has passed since the moment before was `phase`."""
        self._moments.append((phase, self._moment(), time.thread_time(), self._waited()))

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

    def _waited(self) -> float:
        """Seconds that this thread could have run and had no processor, so far; 0 where the kernel does not count."""
        if self._schedule is None:
            return 0.0
        return int(os.pread(self._schedule, 64, 0).split()[1]) / 1e9

    def steps(self) -> tuple[list[Step], Step]:
        """The steps of the stretch, which is over, and what came after the last one."""
        if self._schedule is not None:
            os.close(self._schedule)
            self._schedule = None
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        steps: list[Step] = []
        _, first, processor, waited = self._moments[0]
        at = self._origin
        step = Step(began=at)
        for number, (phase, moment, used, queued) in enumerate(self._moments[1:], start=1):
            if phase == STEP_ENDS:
                steps.append(step)
                step = Step(began=at)
                continue
            now = self._origin + self._between(first, moment)
            step.seconds += now - at
            step.phases[phase] = step.phases.get(phase, 0.0) + now - at
            step.processor[phase] = step.processor.get(phase, 0.0) + used - processor
            step.waited[phase] = step.waited.get(phase, 0.0) + queued - waited
            if number in self.arrivals:
                step.arrived = now
            at, processor, waited = now, used, queued
        return steps, step

    def _between(self, first: Any, moment: Any) -> float:
        return float(first.elapsed_time(moment) / 1000 if self._device.type == "cuda" else moment - first)


def _open_schedule() -> int | None:
    """What the kernel tells of this thread's turns on processors (`schedstat`: nanoseconds on one and without)."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return None
