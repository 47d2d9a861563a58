"""Timeline of a rank's training thread: a list of moments, each of which ends the phase before it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

import torch

STEP_ENDS = "step ends"


def moment(device: torch.device) -> Any:
    """Now: seconds of the host's clock, or on a GPU an event of its stream, so that execution is timed and not
    enqueueing."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds_between(first: Any, second: Any) -> float:
    """Seconds from one moment to another of the same device, which has passed both."""
    return float(second - first if isinstance(first, float) else first.elapsed_time(second) / 1000)


@dataclass(slots=True, kw_only=True)
class Step:
    """One step of the global batch, from the end of the previous one. Seconds by phase of wall time, of the training
    thread's processor time, and of time that it was runnable without a processor. `arrived` is when the last gradient
    was there, from which on a rank can only wait for others; None without other ranks to wait for."""

    began: float
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    arrived: float | None = None


class Timeline:
    """Moments of one stretch of training; nothing waits for those of a GPU before the stretch is over."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._moments: list[tuple[str, Any, float, float]] = []
        self.arrivals: set[int] = set()
        """Moments of the last gradients."""

    def begin(self) -> None:
        """Start the stretch on this thread; the device is idle."""
        self._schedule = _open_schedule()
        self._origin = time.perf_counter()
        self.charge("")

    def charge(self, phase: str) -> None:
        """Charge the time since the previous moment to `phase`."""
        self._moments.append((phase, moment(self._device), time.thread_time(), self._waited()))

    def arrive(self) -> None:
        """All gradients of this rank are there: the time before was its backward pass."""
        self.arrivals.add(len(self._moments))
        self.charge("backward")

    def end_step(self) -> None:
        """End a step at the previous moment."""
        self._moments.append((STEP_ENDS, *self._moments[-1][1:]))

    def _waited(self) -> float:
        """Seconds so far that this thread was runnable without a processor; 0 if the kernel does not count."""
        if self._schedule is None:
            return 0.0
        return int(os.pread(self._schedule, 64, 0).split()[1]) / 1e9

    def steps(self) -> tuple[list[Step], Step]:
        """Steps of the finished stretch, and the time after the last one."""
        if self._schedule is not None:
            os.close(self._schedule)
            self._schedule = None
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        steps: list[Step] = []
        _, first, processor, waited = self._moments[0]
        at = self._origin
        step = Step(began=at)
        for number, (phase, reached, used, queued) in enumerate(self._moments[1:], start=1):
            if phase == STEP_ENDS:
                steps.append(step)
                step = Step(began=at)
                continue
            now = self._origin + seconds_between(first, reached)
            step.seconds += now - at
            step.phases[phase] = step.phases.get(phase, 0.0) + now - at
            step.processor[phase] = step.processor.get(phase, 0.0) + used - processor
            step.waited[phase] = step.waited.get(phase, 0.0) + queued - waited
            if number in self.arrivals:
                step.arrived = now
            at, processor, waited = now, used, queued
        return steps, step


def _open_schedule() -> int | None:
    """The kernel's scheduling statistics of this thread (`schedstat`: nanoseconds on a processor and waiting for
    one)."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return None
