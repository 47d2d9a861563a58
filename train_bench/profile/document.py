"""`profile.json` from the measurements of the ranks; docs/profile.md describes it.

Shares come from the level with the least overhead: phases from level 1; their contents from levels 2 and 3, scaled to
the seconds of level 1, because deeper levels have more overhead.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from train_bench import __version__
from train_bench.core.job import Job, Precision
from train_bench.judge.published import hardware
from train_bench.profile import across, stationarity, verdict
from train_bench.profile.classes import COMPUTING

VERSION = 1

LEVELS = ("campaign", "step", "layer", "operator")
LABELLED = 0.05
"""Overhead above which every number of the level carries a remark."""

SIXTEEN_BITS = (Precision.bf16, Precision.fp16)

DISTURBED = 0.9
"""Share of computing time on a processor below which other load is reported."""

Raw = Mapping[str, Any]


def profile(job: Job, ranks: Sequence[Raw]) -> dict[str, Any]:
    """The content of `profile.json`."""
    content = described(job, ranks)
    content["answer"] = verdict.answer(content)
    return content


def described(job: Job, ranks: Sequence[Raw]) -> dict[str, Any]:
    """All but the verdict."""
    first = ranks[0]
    together = across.ranks(ranks)
    steps = [step for taken in first["rounds"][1] for step in taken["steps"]]
    stretches = len(first["rounds"][1])
    phases = _phases(ranks, together)
    measured = len(steps) / stretches
    per_window = first["steps_of_window"] or measured
    training = sum(phases.values()) / (len(steps) or 1) * per_window
    evaluation = statistics.fmean(first["evaluations"])
    window = {
        "seconds": training + evaluation,
        "training_seconds": training,
        "evaluation_seconds": evaluation,
        "steps": per_window,
        "steps_measured": measured,
        "rounds": stretches,
    }
    seconds = {name: value / (len(steps) or 1) * per_window for name, value in phases.items()}
    seconds["evaluation"] = evaluation
    classes = _classes(first, seconds, per_window)
    lengths = sorted(step["seconds"] for step in steps)
    step_seconds = training / per_window if per_window else 0.0
    batch = job.config["hyperparameters"]["global_batch_size"]
    flop = sum(sum(layer["flop"].values()) for layer in first["layers"])
    content: dict[str, Any] = {
        "version": VERSION,
        "train_bench": __version__,
        "of": "ranks",
        "benchmark": job.benchmark,
        "launcher": job.launcher,
        "ranks": len(ranks),
        "threads_per_rank": first["threads"],
        "device": first["device"],
        "precision": job.precision.value,
        "global_batch_size": batch,
        "workers": (job.config.get("data") or {}).get("workers"),
        "window": window,
        "phases": _phase_rows(ranks, seconds, window["seconds"]),
        "waterfall": _waterfall(seconds, classes, window["seconds"]),
        "step": {
            "seconds": step_seconds,
            "median": statistics.median(lengths) if lengths else None,
            "p95": lengths[min(len(lengths) - 1, int(0.95 * len(lengths)))] if lengths else None,
            "samples_per_second": batch / step_seconds if step_seconds else None,
            "later_over_earlier": _stationarity(first["rounds"][1]),
            "thirds": stationarity.thirds(first["rounds"][1]),
        },
        "levels": _levels(first["rounds"]),
        "classes": classes,
        "layers": _scaled_layers(first["layers"], seconds),
        "operators": _scaled_operators(first["operators"], classes),
        "kernels": list(first["kernels"]),
        "device_calls": dict(first["device_calls"]),
        "unclassified": list(first["unclassified"]),
        "across": together,
        "overlap": first["overlap"],
        "memory": dict(first["memory"]),
        "peak": dict(first["peak"]),
        "compute": _compute(
            flop, step_seconds, first["peak"], _data_sheet(job, first), padded=first["padded"]
        ),
        "processor_use": _processor_use(first),
        "exports": dict(first["exports"]),
    }
    from train_bench.profile import bound  # here, because it imports torch

    content["bound"] = bound.described(
        bound.bound_of_ranks([one["bound"] for one in ranks]), content, _steps_of(ranks)
    )
    content["notes"] = _notes(content)
    return content


def _steps_of(ranks: Sequence[Raw]) -> list[Raw]:
    """Steps of level 1; of each the phases, mean over ranks."""
    rows: list[Raw] = []
    for taken in zip(*(one["rounds"][1] for one in ranks), strict=True):
        for same in zip(*(one["steps"] for one in taken), strict=False):
            names = {name for step in same for name in step["phases"]}
            phases = {
                name: statistics.fmean(step["phases"].get(name, 0.0) for step in same) for name in names
            }
            rows.append({"phases": phases})
    return rows


def _phases(ranks: Sequence[Raw], together: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of all steps of level 1 and of what came after them, mean over ranks; waiting for other ranks is separate
    from transfer."""
    sums: dict[str, float] = defaultdict(float)
    for one in ranks:
        for taken in one["rounds"][1]:
            for step in [*taken["steps"], taken["after"]]:
                for phase, seconds in step["phases"].items():
                    sums[phase] += seconds / len(ranks)
    waited = min(together["waited_seconds"], sums["communication"])
    sums["waiting for ranks"] = waited
    sums["communication"] -= waited
    return dict(sums)


def _phase_rows(ranks: Sequence[Raw], seconds: Mapping[str, float], window: float) -> list[dict[str, Any]]:
    """Phases with the share of their time in which the training thread had a processor and used it, and the share in
    which it was runnable without one."""
    used: dict[str, float] = defaultdict(float)
    waited: dict[str, float] = defaultdict(float)
    passed: dict[str, float] = defaultdict(float)
    for one in ranks:
        for taken in one["rounds"][1]:
            for step in [*taken["steps"], taken["after"]]:
                for phase, value in step["phases"].items():
                    passed[phase] += value
                    used[phase] += step["processor"][phase]
                    waited[phase] += step["waited"][phase]
    return [
        {
            "name": name,
            "seconds": value,
            "share": value / window,
            "thread_used_processor": used[name] / passed[name] if passed.get(name) else None,
            "thread_waited_for_one": waited[name] / passed[name] if passed.get(name) else None,
        }
        for name, value in seconds.items()
        if value > 0
    ]


def _classes(first: Raw, seconds: Mapping[str, float], steps: float) -> list[dict[str, Any]]:
    """Operators by phase and class: seconds of the window, and seconds at the measured peaks.

    A phase's seconds are divided as in level 3; time outside of operators is the framework's, except for the profiler's
    overhead, which lies between operators, equally for each.
    """
    taken = [step for one in first["rounds"][3] for step in one["steps"]]
    of_level: dict[str, float] = defaultdict(float)
    for phase in COMPUTING if taken else ():
        of_level[phase] = statistics.median(step["phases"].get(phase, 0.0) for step in taken)
    measured_by_kind: dict[tuple[str, str], float] = defaultdict(float)
    calls = dict.fromkeys(COMPUTING, 0.0)
    for row in first["operators"]:
        if row["phase"] in COMPUTING:
            measured_by_kind[row["phase"], _kind(row)] += row["seconds"]
            calls[row["phase"]] += row["calls"]
    added = max(0.0, _median_step(first["rounds"][3]) - _median_step(first["rounds"][1]))
    for phase in COMPUTING:
        of_level[phase] -= added * calls[phase] / (sum(calls.values()) or 1.0)
    ideal: dict[tuple[str, str], float] = defaultdict(float)
    for layer in first["layers"]:
        for phase, kinds in layer["ideal_seconds"].items():
            for kind, value in kinds.items():
                ideal[phase, "optimizer" if phase == "optimizer" else kind] += value * steps
    rows = []
    for phase in COMPUTING:
        inside = {kind: value for (where, kind), value in measured_by_kind.items() if where == phase}
        whole = max(of_level[phase], sum(inside.values())) or 1.0
        for kind, value in sorted(inside.items(), key=lambda item: -item[1]):
            scaled = seconds.get(phase, 0.0) * value / whole
            least = min(ideal[phase, kind], scaled)
            rows.append({"phase": phase, "class": kind, "seconds": scaled, "ideal_seconds": least})
        left = seconds.get(phase, 0.0) * (1 - sum(inside.values()) / whole)
        rows.append({"phase": phase, "class": "framework", "seconds": left, "ideal_seconds": 0.0})
    return rows


def _median_step(rounds: Sequence[Raw]) -> float:
    lengths = [step["seconds"] for taken in rounds for step in taken["steps"]]
    return statistics.median(lengths) if lengths else 0.0


def _kind(row: Mapping[str, Any]) -> str:
    """Class of an operator; all operators of an optimizer are one class."""
    return "optimizer" if row["phase"] == "optimizer" else str(row["class"])


def _waterfall(
    seconds: Mapping[str, float], classes: Sequence[Mapping[str, Any]], window: float
) -> list[dict[str, Any]]:
    """Waterfall from computing at the measured peaks to the whole window. The parts add up to it."""
    parts: list[tuple[str, str, float]] = [
        ("compute at peak", "bound", sum(row["ideal_seconds"] for row in classes))
    ]
    above: dict[str, float] = defaultdict(float)
    for row in classes:
        if row["class"] != "framework":
            above[row["class"]] += row["seconds"] - row["ideal_seconds"]
    parts += [
        (f"above peak: {kind}", "inefficiency", value)
        for kind, value in sorted(above.items(), key=lambda item: -item[1])
    ]
    gaps = sum(row["seconds"] for row in classes if row["class"] == "framework")
    parts += [
        ("framework gaps", "gaps", gaps),
        ("input", "input", seconds.get("input", 0.0)),
        ("communication not hidden", "communication", seconds.get("communication", 0.0)),
        ("waiting for the slowest rank", "ranks", seconds.get("waiting for ranks", 0.0)),
        ("own work", "own", seconds.get("own work", 0.0)),
        ("evaluation", "evaluation", seconds.get("evaluation", 0.0)),
    ]
    named = sum(value for _, _, value in parts)
    parts.append(("rest", "rest", window - named))
    return [
        {"name": name, "kind": kind, "seconds": value, "share": value / window} for name, kind, value in parts
    ]


def _stationarity(rounds: Sequence[Raw]) -> float | None:
    """Median step of the later half of the steps over that of the earlier half."""
    earlier, later = [], []
    for taken in rounds:
        lengths = [step["seconds"] for step in taken["steps"]]
        earlier += lengths[: len(lengths) // 2]
        later += lengths[len(lengths) // 2 :]
    return statistics.median(later) / statistics.median(earlier) if earlier else None


def _levels(rounds: Sequence[Sequence[Raw]]) -> list[dict[str, Any]]:
    """Overhead of each level over the one above, for the same steps: the median over rounds, and the smallest and
    largest, which contain the true median with a probability of 1 - 2^(1 - rounds). The overhead in processor time of
    the process is less disturbed by others."""
    rows = []
    for level, name in enumerate(LEVELS):
        row: dict[str, Any] = {"level": level, "name": name, "overhead": None, "labelled": False}
        if level:
            pairs = [*zip(rounds[level], rounds[level - 1], strict=True)]
            ratios = [deeper["seconds"] / above["seconds"] - 1 for deeper, above in pairs]
            of_processor = [deeper["processor"] / above["processor"] - 1 for deeper, above in pairs]
            row["overhead"] = {
                "median": statistics.median(ratios),
                "low": min(ratios),
                "high": max(ratios),
                "sure": 1 - 2.0 ** (1 - len(ratios)),
                "processor": statistics.median(of_processor),
            }
            row["labelled"] = row["overhead"]["median"] > LABELLED
        rows.append(row)
    return rows


def _scaled_layers(layers: Sequence[Raw], seconds: Mapping[str, float]) -> list[dict[str, Any]]:
    """Each record with its seconds of the window, scaled to the phases of level 1."""
    sums = {phase: sum(layer[f"{phase}_seconds"] for layer in layers) for phase in ("forward", "backward")}
    scaled = []
    for layer in layers:
        of_window = {
            phase: seconds.get(phase, 0.0) * layer[f"{phase}_seconds"] / sums[phase] if sums[phase] else 0.0
            for phase in sums
        }
        scaled.append(
            {**layer, "window_forward_seconds": of_window["forward"]}
            | {"window_backward_seconds": of_window["backward"]}
        )
    return scaled


def _scaled_operators(operators: Sequence[Raw], classes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each row with its seconds of the window: its part of its class there."""
    of_window = {(row["phase"], row["class"]): row["seconds"] for row in classes}
    of_level: dict[tuple[str, str], float] = defaultdict(float)
    for row in operators:
        of_level[row["phase"], _kind(row)] += row["seconds"]
    return [
        {
            **row,
            "window_seconds": of_window.get((row["phase"], _kind(row)), 0.0)
            * (row["seconds"] / of_level[row["phase"], _kind(row)] if row["seconds"] else 0.0),
        }
        for row in operators
    ]


def _data_sheet(job: Job, first: Raw) -> float | None:
    """Peak of the rank's accelerator in FLOP a second by its data sheet; None on a CPU, for an unknown accelerator and
    in 32 bits, as the table has 16-bit formats."""
    if first["accelerator"] is None or job.precision not in SIXTEEN_BITS:
        return None
    return hardware.accelerator_peak(first["accelerator"], hardware.BF16)


def _compute(
    flop: float, step_seconds: float, peak: Raw, data_sheet: float | None, *, padded: bool
) -> dict[str, Any]:
    """FLOP of a step of one rank against the measured or stated peak, and against that of the data sheet. Computing
    padding is no model FLOP, so a benchmark that pads gets the hardware utilisation and no MFU."""
    share = flop / (step_seconds * peak["flop_per_second"]) if step_seconds else None
    return {
        "flop_of_step": flop,
        "flop_per_second": flop / step_seconds if step_seconds else None,
        "share_of_peak": share,
        "data_sheet_flop_per_second": data_sheet,
        "share_of_data_sheet": flop / (step_seconds * data_sheet) if step_seconds and data_sheet else None,
        "mfu": None if padded else share,
        "denominator": f"{peak['flop_per_second']:.4g} FLOP/s per rank, {peak['source']}",
    }


def _processor_use(first: Raw) -> float | None:
    """Share of a rank's allowed threads that ran."""
    seconds = sum(taken["seconds"] for taken in first["rounds"][1])
    used = sum(taken["processor"] for taken in first["rounds"][1])
    return used / (seconds * first["threads"]) if seconds else None


def _notes(content: Mapping[str, Any]) -> list[str]:
    notes = []
    for row in content["levels"]:
        if row["labelled"]:
            notes.append(
                f"Level {row['level']} ({row['name']}) has an overhead of {100 * row['overhead']['median']:.0f} % "
                "of a step; its shares are scaled to the seconds of level 1."
            )
    had = verdict.cpu_share(content)
    if had < DISTURBED:
        notes.append(
            f"The training threads had a CPU for {100 * had:.0f} % of their computing time: other processes use "
            "this machine. Profile again while it is idle."
        )
    if content["device"] != "cuda":
        notes.append("On a CPU, level 4 (kernels) equals level 3 (operators).")
    if content["bound"] and content["bound"]["not_measured"]:
        names = ", ".join(content["bound"]["not_measured"])
        notes.append(f"The bound excludes operators that could not be measured alone: {names}.")
    if content["unclassified"]:
        notes.append(f"Unclassified operators: {', '.join(content['unclassified'])}.")
    return notes
