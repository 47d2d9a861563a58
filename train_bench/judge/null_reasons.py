"""Reasons for the values that a score lacks, by the name of the field that is null."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from train_bench.logs.record import TOO_SHORT_TO_TELL
from train_bench.progress import Unit

COUNTABLE = (Unit.EPOCH.value, Unit.SAMPLE.value)
"""Units of progress that a number of samples follows from."""

Reasons = Iterator[tuple[str, str]]


def add_null_reasons(score: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a score with `null_reasons`, and with those of each of its runs."""
    runs = [run | {"null_reasons": _only_null(run, _of_run(run, score))} for run in score["runs"]]
    named = _only_null(score, _of_score(score, runs))
    if score["rcp"]["factor"] is None:
        named["rcp.factor"] = score["rcp"]["message"]
    return {**score, "runs": runs, "null_reasons": named}


def _only_null(content: Mapping[str, Any], reasons: Reasons) -> dict[str, str]:
    return {name: reason for name, reason in reasons if content[name] is None}


def _of_run(run: Mapping[str, Any], score: Mapping[str, Any]) -> Reasons:
    timed = (
        "the log has no run_stop" if run["status"] == "died" else "the log has no run_start above run_stop"
    )
    yield "minutes", timed
    reached = (
        "the run did not converge" if run["status"] != "success" else "its last evaluation has no position"
    )
    yield "convergence", reached
    samples = reached if run["convergence"] is None else _uncounted(score)
    yield "samples", samples
    yield "samples_per_second", samples if run["samples"] is None else _untimed(run, timed)
    yield "quality", "there is no evaluation that is a number"
    yield "seed", "no seed is logged"
    yield "processor_lost", _unmeasured(run)
    yield "peak_host_bytes", "peak_memory is not logged"
    yield "peak_device_bytes", "peak_memory of a GPU is not logged"


def _unmeasured(run: Mapping[str, Any]) -> str:
    """Reason for an unknown share of processor time that others took."""
    if (run["minutes"] or math.inf) * 60 < TOO_SHORT_TO_TELL:
        return "processor_wait is not logged, or the run is too short: the kernel counts in ticks of 10 ms"
    return "processor_wait is not logged"


def _untimed(run: Mapping[str, Any], timed: str) -> str:
    if run["minutes"] is None:
        return timed
    return "the run converged without training" if run["minutes"] > 0 else "run_stop is not after run_start"


def _uncounted(score: Mapping[str, Any]) -> str:
    if score["unit"] not in COUNTABLE:
        return f"progress of {score['benchmark']} is counted in {score['unit']}s, not in samples"
    return "neither samples_per_epoch nor train_samples is logged as a number"


def _of_score(score: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> Reasons:
    converged = [run for run in runs if run["counted"] and run["converged"] and run["minutes"] is not None]
    olympic = _no_mean(score, runs)
    few = f"{len(converged)} run(s) converged; a deviation needs 2"
    yield "olympic_minutes", olympic
    yield "rcp_factor_applied", olympic
    yield "score_minutes", olympic
    yield "stdev_minutes", few
    yield "ci95_minutes", _no_interval(score, converged, olympic, few)
    kept = [run for run in runs if run["counted"] and not run["dropped"]]
    factors = olympic if score["olympic_minutes"] is None else _of_first(kept)
    yield "samples_to_target", factors
    yield "samples_per_second", factors
    yield "global_batch_size", "the logs have none, or differ in it"


def _no_mean(score: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    if score["weak"] is not None:
        return "weak scaling has no olympic mean; the score is the time to train all models"
    failed = sum(run["counted"] and not (run["converged"] and run["compliant"]) for run in runs)
    return f"too few runs count: {len(runs)} of {score['runs_required']} are there, {failed} of them failed"


def _no_interval(
    score: Mapping[str, Any], converged: Sequence[Mapping[str, Any]], olympic: str, few: str
) -> str:
    if score["olympic_minutes"] is None:
        return olympic
    if len(converged) < 2:
        return few
    if any(run["minutes"] <= 0 for run in converged):
        return (
            "a run takes no time"
            if all(run["minutes"] >= 0 for run in converged)
            else "a run ends before it starts"
        )
    return "a log is a copy of another, so the runs are not independent"


def _of_first(kept: Sequence[Mapping[str, Any]]) -> str:
    """Reason of the first kept run that has none of the two factors."""
    for run in kept:
        for name in ("samples", "minutes"):
            if name in run["null_reasons"]:
                return f"{run['file']}: {run['null_reasons'][name]}"
    return (
        "the kept runs take no time"
        if kept and kept[0]["minutes"] >= 0
        else "a kept run ends before it starts"
    )
