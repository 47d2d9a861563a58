"""Lower bound of a step: its operators in sequence, each with the fastest layout and library that torch offers here,
plus unavoidable input and communication; and the critical path through the graph of dependencies. Time between
operators is left out."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from train_bench.core.job import Precision
from train_bench.profile import bricks
from train_bench.profile.bricks import Brick, CallRecorder, TensorSpec
from train_bench.profile.classes import COMPUTING
from train_bench.profile.graph import Graph

LONGEST_SECONDS = 120.0
"""Time limit: operators that are not measured by then count as zero; those that move most bytes come first."""

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

CHOOSING = ("matrix", "convolution")
"""Classes with oneDNN kernels, for which lower precision is an option."""

LOWER = "products and convolutions in bf16"
"""Not part of the bound: results differ."""

DIVIDED = ("input", "forward", "backward", "own work")
"""Phases that take less time with fewer samples per rank; the optimizer updates as many weights."""

MORE_RANKS = (2, 4, 8)
"""Multiples of the present number of ranks."""

TIMES = 5
"""Repetitions of the all-reduce, of which the fastest counts."""

Raw = Mapping[str, Any]


def measure(
    calls: CallRecorder, graph: Graph, steps: int, device: torch.device, precision: Precision
) -> dict[str, Any]:
    """Bound of a step: best seconds by module and phase, those of the critical path by phase, the saving of each
    alternative for all operators, and the relative difference of two measurements."""
    nothing = bricks.measure(bricks.NOTHING, device)
    call = 0.0 if nothing is None else nothing.least
    counts: Counter[str] = sum(calls.of.values(), Counter())
    layouts = any(brick.kind == "convolution" for brick in calls.bricks.values())
    best: dict[str, float] = {}
    saved: dict[str, float] = defaultdict(float)
    unmeasured: set[str] = set()
    differ, until = 0.0, time.perf_counter() + LONGEST_SECONDS
    for key, brick in sorted(calls.bricks.items(), key=lambda item: -counts[item[0]] * item[1].bytes):
        measured = bricks.measure(brick, device) if time.perf_counter() < until else None
        if measured is None:
            unmeasured.add(brick.operator.overloadpacket.__name__)
            continue
        seconds = {"": max(0.0, measured.least - call)}
        for name, other in _choices(brick, device, precision, layouts=layouts).items():
            at = bricks.measure(other, device)
            if at is not None:
                seconds[name] = max(0.0, at.least - call)
                saved[name] += (seconds[""] - seconds[name]) * counts[key] / steps
        best[key] = min(value for name, value in seconds.items() if name != LOWER)
        saved["the best layout and library for each operator"] += (
            (seconds[""] - best[key]) * counts[key] / steps
        )
        differ += abs(measured.fastest[0] - measured.fastest[1]) * counts[key] / steps
    own: dict[str, dict[str, float]] = defaultdict(dict)
    for (owner, phase), keys in calls.of.items():
        own[owner][phase] = sum(best.get(key, 0.0) * count for key, count in keys.items()) / steps
    whole = sum(value for phases in own.values() for value in phases.values())
    return {
        "layers": own,
        "path": {phase: seconds / steps for phase, seconds in graph.longest(best).items()},
        "error": differ / whole if whole else 0.0,
        "saved": saved,
        "unique": len(calls.bricks),
        "calls": counts.total() / steps,
        "not_measured": sorted(unmeasured),
    }


def _choices(brick: Brick, device: torch.device, precision: Precision, *, layouts: bool) -> dict[str, Brick]:
    """Alternatives of an operator; layouts matter to a step with convolutions."""
    choices = {}
    if layouts:
        for name, last in (("all in channels_last", True), ("all contiguous", False)):
            choices[name] = brick.with_spec(partial(_laid_out, last=last))
    if brick.kind in CHOOSING and device.type == "cpu":
        choices["all without oneDNN"] = replace(brick, library=False)
    if brick.kind in CHOOSING and precision in (Precision.fp32, Precision.tf32):
        choices[LOWER] = brick.with_spec(_in_bf16)
    return {name: other for name, other in choices.items() if other.key != brick.key}


def _laid_out(tensor: TensorSpec, *, last: bool) -> TensorSpec:
    if len(tensor.shape) not in LAST or not tensor.dtype.is_floating_point:
        return tensor
    layout = LAST[len(tensor.shape)] if last else torch.contiguous_format
    return replace(tensor, stride=torch.empty(tensor.shape, device="meta", memory_format=layout).stride())


def _in_bf16(tensor: TensorSpec) -> TensorSpec:
    return replace(tensor, dtype=torch.bfloat16) if tensor.dtype is torch.float32 else tensor


def communication(parallel: Any, gradients: int, device: torch.device) -> float:
    """Seconds of an all-reduce of as many numbers as there are gradients."""
    if parallel.size == 1:
        return 0.0
    numbers, fastest = torch.zeros(gradients, device=device), float("inf")
    for _ in range(TIMES):
        parallel.barrier()
        began = time.perf_counter()
        parallel.sum(numbers)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def bound_of_ranks(measured: Sequence[Raw | None]) -> dict[str, Any] | None:
    """Merge `measure` and `communication` of all ranks: means over ranks, like the measured times; of the errors the
    largest. None if a rank has none."""
    ranks = [one for one in measured if one is not None]
    if not ranks or len(ranks) < len(measured):
        return None
    layers: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    saved: dict[str, float] = defaultdict(float)
    path: dict[str, float] = defaultdict(float)
    for one in ranks:
        for owner, phases in one["layers"].items():
            for phase, seconds in phases.items():
                layers[owner][phase] += seconds / len(ranks)
        for what, seconds in one["saved"].items():
            saved[what] += seconds / len(ranks)
        for phase, seconds in one["path"].items():
            path[phase] += seconds / len(ranks)
    return {
        "layers": layers,
        "path": path,
        "saved": saved,
        "error": max(one["error"] for one in ranks),
        "unique": max(one["unique"] for one in ranks),
        "calls": statistics.fmean(one["calls"] for one in ranks),
        "not_measured": sorted({name for one in ranks for name in one["not_measured"]}),
        "communication": statistics.fmean(one["communication"] for one in ranks),
    }


def described(measured: Raw | None, content: Raw, steps: Sequence[Raw]) -> dict[str, Any] | None:
    """Bound of a step for `profile.json`; `steps` are those of level 1. Input takes its time in the fastest of them;
    communication is hidden by the backward pass as far as that lasts; the benchmark's own work is not bounded, so it
    counts as it is. In parallel the critical path takes the place of all operators."""
    per_window = content["window"]["steps"]
    if measured is None or not per_window or not steps:
        return None
    took = {
        row["name"]: row["seconds"] / per_window for row in content["phases"] if row["name"] != "evaluation"
    }
    least = dict.fromkeys(took, 0.0)
    for phases in measured["layers"].values():
        for phase, seconds in phases.items():
            least[phase] = least.get(phase, 0.0) + seconds
    least["input"] = min(step["phases"].get("input", 0.0) for step in steps)
    # the critical path has a subset of the calls, so no phase is longer on it except by rounding
    path = least | {
        phase: min(value, measured["path"].get(phase, 0.0))
        for phase, value in least.items()
        if phase in COMPUTING
    }
    for one in (least, path):
        exposed = measured["communication"] - one.get("backward", 0.0)
        if exposed > 0:
            one["communication"] = exposed
        if "own work" in took:
            one["own work"] = took["own work"]
    whole, step_seconds = sum(least.values()), sum(took.values())
    free = {
        "input free": took.get("input", 0.0),
        "communication free": took.get("communication", 0.0) + took.get("waiting for ranks", 0.0),
    }
    return {
        "seconds": whole,
        "parallel_seconds": sum(path.values()),
        "measured_seconds": step_seconds,
        "ratio": whole / step_seconds,
        "error": measured["error"],
        "phases": [
            {"name": name, "seconds": seconds, "measured_seconds": took.get(name, 0.0)}
            for name, seconds in least.items()
        ],
        "unique": measured["unique"],
        "calls": measured["calls"],
        "not_measured": measured["not_measured"],
        "as_if": [
            {"what": what, "saved_seconds": seconds, "saved_minutes": None}
            for what, seconds in [
                *measured["saved"].items(),
                *free.items(),
                *_with_more_ranks(measured["communication"], content, took),
            ]
            if seconds
        ],
    }


def _with_more_ranks(
    communication: float, content: Raw, took: Mapping[str, float]
) -> Iterator[tuple[str, float]]:
    """Saving of a step whose samples are divided among more ranks of the same kind. Operators scale with their samples;
    the time between them stays. An all-reduce over n ranks sends (n - 1) / n of the numbers twice, as a ring does; as
    much of it is hidden as is now, by a backward pass that is shorter."""
    ranks, batch = content["ranks"], content["global_batch_size"]
    between: dict[str, float] = defaultdict(float)
    for row in content["classes"]:
        if row["class"] == "framework":
            between[row["phase"]] += row["seconds"] / content["window"]["steps"]
    by_samples = sum(max(0.0, took.get(phase, 0.0) - between[phase]) for phase in DIVIDED)
    hidden = max(0.0, communication - took.get("communication", 0.0))
    for times in MORE_RANKS:
        if batch % (times * ranks):
            continue
        shorter = 1 - 1 / times
        if ranks == 1:
            yield f"{times} ranks, without their communication", by_samples * shorter
            continue
        longer = communication * (ranks - 1 / times) / (ranks - 1)
        yield f"{times * ranks} ranks", by_samples * shorter - (longer - communication) - hidden * shorter


def bound_of_layer(measured: Raw | None, owner: str) -> dict[str, float] | None:
    """Lower bound of a module: seconds of a step by phase."""
    if measured is None:
        return None
    return dict(measured["layers"].get(owner, {}))
