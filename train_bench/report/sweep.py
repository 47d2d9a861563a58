"""The table of a sweep. Takes what its jobs left, computes nothing."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def show_sweep(jobs: Sequence[Mapping[str, Any]], folder: Path, console: Console) -> None:
    """One line per job, with the options in which the jobs differ; then a line for each that is no valid
    result, and why."""
    shared = set.intersection(*(set(job["words"]) for job in jobs)) if len(jobs) > 1 else set()
    table = Table(
        title=f"{len(jobs)} job(s) in {folder}",
        title_justify="left",
        box=box.SIMPLE,
        padding=(0, 1),
        pad_edge=False,
    )
    table.add_column("job", justify="right", no_wrap=True)
    table.add_column("options", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    table.add_column("runs", justify="right", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    for job in jobs:
        score = job["score"]
        minutes = score["score_minutes"] if score else None
        table.add_row(
            str(job["number"]),
            " ".join(_short(word) for word in job["words"] if word not in shared),
            outcome(job),
            f"{len(score['runs'])} of {score['runs_required']}" if score else "-",
            "-" if minutes is None else f"{minutes:.4f} min",
        )
    console.print(table)
    for job in jobs:
        if job["exit_code"] != 0:
            console.print(
                f"job {job['number']}: {reason(job)}", highlight=False, markup=False, soft_wrap=True
            )


def _short(word: str) -> str:
    """`benchmark.hyperparameters.opt_name=sgd` -> `opt_name=sgd`."""
    key, _, value = word.partition("=")
    return f"{key.rpartition('.')[2]}={value}"


def outcome(job: Mapping[str, Any]) -> str:
    """One or two words for how a job ended."""
    code, score = job["exit_code"], job["score"]
    if code is None:
        return "lost"
    if code < 0:
        return f"killed ({signal.Signals(-code).name})"
    if code == 2:
        return "refused"
    if score is None:
        return "failed" if code else "done"
    if score["valid"]:
        return "valid"
    return "incomplete" if len(score["runs"]) < score["runs_required"] else "not valid"


def reason(job: Mapping[str, Any]) -> str:
    """Why a job is no valid result."""
    if job["score"] is not None:
        return " ".join(job["score"]["reasons"])
    return str(job["said"]).removeprefix("train-bench: ") or f"ended with exit code {job['exit_code']}"
