"""Least time of the work that a run claims: its training samples, each of at least the operations that the contest
states, at the peak of the data sheet of its accelerators, or at what processors of its host were measured to do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from train_bench.judge.checks.observed import observed_of
from train_bench.judge.entry import Judgement
from train_bench.judge.published import hardware

SLACK = 1.5
"""Factor above the measured speed, or the data sheet, from which a time is not believed; as of `check_physics`."""

WIDTH, REPEATS = 768, 7
"""Rows and columns of the matrices, and how often they are multiplied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBound:
    """Of the run that comes nearest to it: operations that it claims, seconds that they take at least and those that it
    had, of accelerators on the clock or of processors. `share` is the former over the latter."""

    file: str
    flop: float
    least_seconds: float
    seconds: float
    of_accelerators: bool

    @property
    def share(self) -> float:
        """Above 1 the run had less time than its work takes."""
        return self.least_seconds / max(self.seconds, 1e-3)

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self) | {"share": self.share}


def measured_core_flops() -> float:
    """Operations of a processor's second in the multiplication of matrices of fp32, the best of a few; processes that
    share the processors do not count, nor does the number of threads."""
    one = np.random.default_rng(1).random((WIDTH, WIDTH), dtype=np.float32)
    one @ one
    best = 0.0
    for _ in range(REPEATS):
        began = time.process_time()
        one @ one
        best = max(best, 2 * WIDTH**3 / max(time.process_time() - began, 1e-6))
    return best


def nearest(
    judged: Judgement, machine: Mapping[str, Any], flop_per_sample: float, core_flops: float | None
) -> WorkBound | None:
    """Bound of the run that comes nearest to it on a `machine`, as the other side describes it; None where no run has
    samples and a time, or the speed of the accelerators is not known."""
    names, cores = machine.get("accelerators"), machine.get("cores")
    peak = _peak(names) if isinstance(names, list) and names else None
    found = []
    for record in judged.records:
        if record.samples is None or record.minutes is None:
            continue
        flop, seconds = record.samples * flop_per_sample, record.minutes * 60
        if peak is None:
            if names or core_flops is None or not isinstance(cores, int):
                continue
            seen = observed_of(judged.location, record.index)
            used = None if seen is None else seen.clock_processor_seconds
            seconds = min(cores * seconds, cores * seconds if used is None else used)
        found.append(
            WorkBound(
                file=record.file,
                flop=flop,
                least_seconds=flop / (peak or core_flops or 1.0),
                seconds=seconds,
                of_accelerators=peak is not None,
            )
        )
    return max(found, key=lambda one: one.share, default=None)


def _peak(names: Sequence[object]) -> float | None:
    peaks = [hardware.accelerator_peak(str(name), hardware.FP8) for name in names]
    return None if None in peaks else sum(peak for peak in peaks if peak is not None)
