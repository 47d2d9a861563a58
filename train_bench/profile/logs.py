"""Level 0: time of runs by phase, from their logs alone, of any round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench.errors import LogError
from train_bench.judge import locate
from train_bench.judge.entry import benchmark_of
from train_bench.logs.record import read_record
from train_bench.logs.timeline import Phases, phases_of
from train_bench.profile.document import VERSION
from train_bench.profile.verdict import WARNING, severity
from train_bench.rules import ruleset

CLOCK = ("data", "train", "evaluation", "other")
NEXT = {
    "data": ("opening its data", "move work to train-bench prepare, or open less data"),
    "train": ("training", "profile a step: train-bench profile benchmark=NAME"),
    "evaluation": ("evaluations", "evaluate with larger batches or more ranks"),
    "other": ("time outside of blocks and evaluations", "check the work between its blocks"),
}


def profile(path: Path, ruleset_name: str | None) -> dict[str, Any]:
    """Profile of the entries below a path. Raises `LogError` if no clock of theirs has run."""
    entries = [_entry(location) for location in locate.find(path, ruleset_name).locations]
    timed = [entry for entry in entries if entry is not None]
    if not timed:
        raise LogError(f"No log in {path} has a run_start, so there is no time to break down.")
    return {
        "version": VERSION,
        "of": "logs",
        "answer": {"sentence": _sentence(timed)},
        "entries": timed,
    }


def _entry(location: locate.Location) -> dict[str, Any] | None:
    held = ruleset.load(location.ruleset)
    name = str(location.plan_or_package.get("benchmark") or benchmark_of(location, held))
    rules = held.benchmark(name)
    runs = []
    for file in location.files:
        record, log = read_record(file, rules)
        phases = phases_of(record, log.events)
        if phases is not None:
            runs.append((phases, record.samples_per_second))
    if not runs:
        return None
    minutes = {part: statistics.fmean(_minutes(phases, part) for phases, _ in runs) for part in CLOCK}
    clock = sum(minutes.values())
    speeds = [speed for _, speed in runs if speed]
    inits = [phases.init for phases, _ in runs if phases.init is not None]
    return {
        "folder": str(location.folder),
        "name": "/".join(part for part in (location.submitter, location.system, name) if part),
        "benchmark": name,
        "ruleset": location.ruleset,
        "runs": len(runs),
        "clock_minutes": clock,
        "init_minutes": statistics.fmean(inits) if inits else None,
        "minutes": minutes,
        "shares": {part: value / clock if clock else 0.0 for part, value in minutes.items()},
        "evaluation_known": all(phases.evaluation is not None for phases, _ in runs),
        "samples_per_second": statistics.fmean(speeds) if speeds else None,
    }


def _minutes(phases: Phases, part: str) -> float:
    value = getattr(phases, part)
    return 0.0 if value is None else float(value)


def _sentence(entries: list[dict[str, Any]]) -> str:
    """Sentence on the entry with the largest share of time outside training."""
    worst = max(entries, key=lambda entry: 1 - entry["shares"]["train"])
    shares: Mapping[str, float] = worst["shares"]
    part = max(("data", "evaluation", "other"), key=shares.__getitem__)
    of = f"{worst['name']} ({worst['runs']} run(s) of {worst['clock_minutes']:.3g} min)"
    if shares[part] < WARNING:
        what, next_step = NEXT["train"]
        what += (
            "" if worst["evaluation_known"] else " and evaluations, which some of its logs do not separate"
        )
        return f"{of} spends {100 * shares['train']:.0f} % of its clock in {what}; {next_step}."
    what, next_step = NEXT[part]
    return f"{of} spends {100 * shares[part]:.0f} % of its clock on {what} ({severity(shares[part])}); {next_step}."
