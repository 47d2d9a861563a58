"""Results table of a sweep. Takes the results of its jobs, computes nothing."""

from __future__ import annotations

import signal
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from train_bench.core.digits import distinct, minutes_in_digits
from train_bench.judge.state import state_of
from train_bench.report.console import print_line

DISTURBED = (
    "the jobs run concurrently on this machine and slow each other down; their times are not those of a "
    "job alone"
)


def show_sweep(
    jobs: Sequence[Mapping[str, Any]], folder: Path, console: Console, *, together: bool = False
) -> None:
    """One line per job, with the options in which the jobs differ; then the faster job, and a line with the reason for
    each invalid result."""
    shared = set.intersection(*(set(job["overrides"]) for job in jobs)) if len(jobs) > 1 else set()
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
    table.add_column("minutes", justify="right", no_wrap=True)
    for job in jobs:
        score, minutes = job["score"], time_of(job)
        table.add_row(
            str(job["number"]),
            " ".join(_short(word) for word in job["overrides"] if word not in shared),
            outcome(job),
            f"{len(score['runs'])} of {score['runs_required']}" if score else "-",
            "-" if minutes is None else minutes_in_digits(minutes),
        )
    console.print(table)
    for line in (*_below(jobs, together=together), *_reasons(jobs)):
        print_line(console, line)


def time_of(job: Mapping[str, Any]) -> float | None:
    """Score; without one, the mean time of the compliant runs that reached the target."""
    score = job["score"]
    if score is None:
        return None
    if score["score_minutes"] is not None:
        return float(score["score_minutes"])
    times = [run["minutes"] for run in score["runs"] if run["converged"] and run["compliant"]]
    known = [float(time) for time in times if time is not None]
    return statistics.fmean(known) if known else None


def _failed(job: Mapping[str, Any]) -> int:
    return sum(not (run["converged"] and run["compliant"]) for run in job["score"]["runs"])


def _below(jobs: Sequence[Mapping[str, Any]], *, together: bool) -> Iterator[str]:
    """Definition of the minutes, and the faster job if they are comparable."""
    if together and any(time_of(job) is not None for job in jobs):
        yield f"Note: {DISTURBED}."
    timed = [(minutes, job) for job in jobs if (minutes := time_of(job)) is not None]
    if any(job["score"]["score_minutes"] is None for _, job in timed):
        yield "minutes: the score, else the mean of the runs that reached the target"
    tasks = {(job["score"]["benchmark"], job["score"]["target"]) for _, job in timed}
    if len(timed) > 1 and len(tasks) == 1:
        timed.sort(key=lambda one: one[0])
        (fastest, first), (slowest, last) = timed[0], timed[-1]
        failed = {job["number"]: _failed(job) for _, job in timed}
        if any(failed.values()):
            listed = ", ".join(
                f"{count} of {len(job['score']['runs'])} of job {job['number']}"
                for _, job in timed
                if (count := failed[job["number"]])
            )
            yield (
                f"runs that did not reach the target or broke the rules: {listed}, so no job is called the fastest; "
                "train-bench compare counts them."
            )
            return
        yield (
            f"job {first['number']} was the fastest: {minutes_in_digits(fastest)} min; job {last['number']} took "
            f"{distinct(slowest / fastest, 1.0)[0]} times as long. train-bench compare tests whether the difference is "
            "significant."
        )


def _reasons(jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    return (f"job {job['number']}: {reason(job)}" for job in jobs if job["exit_code"] != 0)


def _short(word: str) -> str:
    """`benchmark.hyperparameters.opt_name=sgd` -> `opt_name=sgd`."""
    key, _, value = word.partition("=")
    return f"{key.rpartition('.')[2]}={value}"


def outcome(job: Mapping[str, Any]) -> str:
    """Outcome of a job in one or two words."""
    code, score = job["exit_code"], job["score"]
    if code is None:
        return "lost"
    if code < 0:
        return f"killed ({signal.Signals(-code).name})"
    if code == 2:
        return "refused"
    if score is None:
        return "failed" if code else "done"
    return state_of(score["valid"], score["reasons"])


def reason(job: Mapping[str, Any]) -> str:
    """Reason why a job has no valid result."""
    if job["score"] is not None:
        return " ".join(job["score"]["reasons"])
    return str(job["said"]).removeprefix("train-bench: ") or f"ended with exit code {job['exit_code']}"
