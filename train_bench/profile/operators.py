"""Levels 3 and 4: operators, and on a GPU their kernels, as recorded by torch's profiler."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

from train_bench.core.variables import variable
from train_bench.profile.classes import FRAMEWORK, class_of

PHASE = "phase:"
CPU = torch._C._autograd.DeviceType.CPU
LAUNCH = re.compile(r"(cu|cuda|hip)(Ext)?(Module)?(Launch\w*|GraphLaunch)")
"""Calls of the runtime that start a kernel or a graph of kernels."""

WAIT = re.compile(r"(cuda|hip)(Stream|Device|Event)Synchronize|(cuda|hip)Memcpy(2D|3D)?")
"""Calls of the runtime that return after the device has done something."""

READ = re.compile(r"aten::(_local_scalar_dense|nonzero|_unique2|unique_dim|unique_consecutive)")
"""Operators whose result or shape the host reads, for which it waits if they are on a GPU."""

ATTENTION = re.compile(r"flash|fmha|attention|sdpa|mha_|attn_fwd|attn_bwd", re.IGNORECASE)
"""Names of attention kernels, and on a CPU of attention operators."""

LARGEST_EXPORT = 50 * 2**20
"""Bytes of an exported step. What is larger is not kept."""


class Phases:
    """Annotations around the phases of a step."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def phase_begins(self, phase: str, loss: torch.Tensor | None = None) -> None:
        """Start of a phase."""
        annotation = record_function(f"{PHASE}{phase}")
        annotation.__enter__()
        self._open.append(annotation)

    def phase_ends(self, phase: str) -> None:
        """End of a phase."""
        if self._open:
            self._open.pop().__exit__(None, None, None)

    def step_ended(self) -> None:
        """No-op."""


class Operators(Phases):
    """Sums over the profiler's events of a few stretches, by phase. On a CPU recording pauses between phases, where a
    benchmark with self-play calls more operators than in all its steps."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._cuda = device.type == "cuda"
        self._seconds: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self._steps = 0
        self._calls: dict[tuple[str, str], int] = defaultdict(int)
        self._kernels: dict[str, list[float]] = defaultdict(list)
        self._runtime: Counter[str] = Counter()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Context: a stretch under the profiler."""
        with _quiet(), profile(activities=_activities(self._cuda), acc_events=True) as self._profiler:
            self._collect(False)
            yield
        self._add(self._profiler.events() or ())

    def phase_begins(self, phase: str, loss: torch.Tensor | None = None) -> None:
        """Start recording operators."""
        if not self._open:
            self._collect(True)
        super().phase_begins(phase, loss)

    def phase_ends(self, phase: str) -> None:
        """Stop recording, unless the phase lies within another."""
        super().phase_ends(phase)
        if not self._open:
            self._collect(False)

    def _collect(self, wanted: bool) -> None:
        if not self._cuda:
            self._profiler.toggle_collection_dynamic(wanted, _activities(cuda=False))

    def _add(self, events: Any) -> None:
        """Count an operator in its innermost phase with its self time: on a CPU without the operators that it called,
        on a GPU the time of its kernels. A phase is everything between its begin and its end on whatever thread, as a
        backward pass on a GPU has its own. Events are sorted by their begin."""
        phases: list[Any] = []
        for event in events:
            if event.device_type != CPU:
                if not event.is_user_annotation:
                    self._kernels[event.name].append(event.device_time_total / 1e6)
                continue
            while phases and phases[-1].time_range.end <= event.time_range.start:
                phases.pop()
            if event.name.startswith(PHASE):
                phases.append(event)
                self._steps += event.name == f"{PHASE}optimizer"
                continue
            if not phases:
                continue
            for what, calls in (("launches", LAUNCH), ("waits", WAIT), ("reads", READ)):
                self._runtime[what] += calls.fullmatch(event.name) is not None
            phase = phases[-1].name.removeprefix(PHASE)
            step = self._steps - (phase == "optimizer")
            took = sum(one.duration for one in event.kernels) if self._cuda else event.self_cpu_time_total
            self._seconds[phase, event.name][step] += took / 1e6
            self._calls[phase, event.name] += 1

    def table(self, steps: int) -> list[dict[str, Any]]:
        """Operators by median time per step over all steps, the slowest first. Profiler events other than operators are
        left out: they are the framework's own time."""
        rows = [
            {
                "name": name,
                "class": class_of(name),
                "phase": phase,
                "seconds": statistics.median(by_step.get(step, 0.0) for step in range(steps)),
                "calls": self._calls[phase, name] / steps,
            }
            for (phase, name), by_step in self._seconds.items()
        ]
        kept = (row for row in rows if row["class"] not in (FRAMEWORK, "communication"))
        return sorted(kept, key=lambda row: -row["seconds"])

    def kernels(self, steps: int) -> list[dict[str, Any]]:
        """Kernels by name with their time per step; none on a CPU."""
        rows = [
            {"name": name, "seconds": sum(times) / steps, "calls": len(times) / steps}
            for name, times in self._kernels.items()
        ]
        return sorted(rows, key=lambda row: -row["seconds"])

    def device_calls(self, steps: int) -> dict[str, Any]:
        """Kernel launches and host synchronisations of a step (None on a CPU), operators whose values the host reads,
        and the attention kernel that takes most of a step's time, on a CPU the operator; None without attention."""
        named = self.kernels(steps) if self._cuda else self.table(steps)
        attention = (row["name"] for row in named if ATTENTION.search(row["name"]))
        return {
            "launches": self._runtime["launches"] / steps if self._cuda else None,
            "host_synchronisations": self._runtime["waits"] / steps if self._cuda else None,
            "host_reads": self._runtime["reads"] / steps,
            "attention_kernel": next(attention, None),
        }


class OneStep(Phases):
    """Export of the first step from its first forward pass to its end: a Chrome trace, and the host trace that Chakra's
    tools read. Traces above the size limit are deleted, with a remark."""

    def __init__(self, folder: Path, rank: int, device: torch.device) -> None:
        super().__init__()
        self._chrome = folder / f"trace_{rank}.json"
        self._chakra = folder / f"chakra_{rank}.json"
        self._activities = _activities(device.type == "cuda")
        self._profiler: Any = None
        self._over = False

    def phase_begins(self, phase: str, loss: torch.Tensor | None = None) -> None:
        """The first forward pass starts the export."""
        if self._profiler is None and not self._over and phase == "forward":
            observer = ExecutionTraceObserver().register_callback(str(self._chakra))
            self._profiler = profile(activities=self._activities, execution_trace_observer=observer)
            with _quiet():
                self._profiler.__enter__()
        super().phase_begins(phase, loss)

    def step_ended(self) -> None:
        """The first step's end ends it."""
        if self._profiler is not None:
            with _quiet():
                self._profiler.__exit__(None, None, None)
                self._profiler.export_chrome_trace(str(self._chrome))
            self._profiler, self._over = None, True

    def written(self) -> dict[str, str]:
        """Exported files by kind, or the reason for none."""
        exports = {}
        for what, path in {"chrome_trace": self._chrome, "chakra_host_trace": self._chakra}.items():
            size = path.stat().st_size if path.is_file() else 0
            exports[what] = path.name if size else "none: no step was trained"
            if size > LARGEST_EXPORT:
                path.unlink()
                exports[what] = (
                    f"none: a step has {size / 2**20:.0f} MiB, above the limit of {LARGEST_EXPORT >> 20} MiB"
                )
        return exports


def _activities(cuda: bool) -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]


def _quiet() -> AbstractContextManager[None]:
    """Context: suppress output of the profiler's library without a GPU."""
    return variable("KINETO_LOG_LEVEL", "99")
