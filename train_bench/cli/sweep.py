"""A sweep: each of its jobs is a process of its own, with the command that a user would type for it, so that a job
that is refused, fails or is killed takes no other down, whichever of Hydra's launchers starts it.

A sweep's folder holds `sweep.json` (the requested jobs), per job `N.json` (its outcome), `N.stderr` and `N/`, its
campaign.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.cli import exit_codes
from train_bench.core import files
from train_bench.judge.state import INCOMPLETE, state_of
from train_bench.observers.terminal import SWEEP_JOB
from train_bench.plan import discover, process
from train_bench.plan.option import with_folder
from train_bench.report import sweep as table
from train_bench.report.console import make_console

DISTURBED = table.DISTURBED

LOST = "its process was killed, or never started"


def begin(folder: Path, jobs: Sequence[Sequence[str]]) -> None:
    """Write down the requested jobs before any of them starts."""
    files.write_json(folder / "sweep.json", [list(overrides) for overrides in jobs])


def run_job(verb: str, folder: Path, number: int, overrides: Sequence[str], *, together: bool) -> int:
    """Carry out one job, at the same time as others if `together`, and write its outcome into the sweep's folder.
    Returns its exit code."""
    campaign = folder / str(number)
    stores = [override for override in overrides if override.startswith("store=")]  # no plan keeps it
    begun = (campaign / "plan.json").exists()
    overrides_of_job = (
        [with_folder("resume", campaign), *stores] if begun else [*overrides, with_folder("output", campaign)]
    )
    stderr = folder / f"{number}.stderr"
    os.environ[SWEEP_JOB] = f"{number} {'together' if together else 'alone'}"
    try:
        code = process.run_through((sys.executable, "-m", "train_bench", verb, *overrides_of_job), stderr)
    finally:
        said = stderr.read_text(encoding="utf-8", errors="replace")
        sys.stderr.write(said)
        sys.stderr.flush()
    files.write_json(folder / f"{number}.json", {"exit_code": code, "said": said.strip().rpartition("\n")[2]})
    return code


def conclude(folder: Path, trouble: str | None, *, together: bool) -> int:
    """Show one table of all jobs, which ran `together` or not, and the `trouble` of the launcher that started them.
    Jobs that a batch system ran elsewhere do not slow others down. Returns 0 if all succeeded, 2 if all were
    refused, else 1."""
    jobs = outcomes(folder)
    here = [job for job in jobs if not job["queued"]]
    table.show_sweep(jobs, folder, make_console(), together=together and len(here) > 1)
    if trouble is not None:
        exit_codes.say(f"the launcher of the sweep gave up: {trouble}")
        return 1
    codes = {0 if _reached(job) else job["exit_code"] for job in jobs}
    return int(codes.pop()) if codes in ({0}, {2}) else 1


def _reached(job: Mapping[str, Any]) -> bool:
    """True if every requested run of a job reached the target by the rules, even if they are fewer than a score
    takes."""
    if job["exit_code"] != 1 or job["score"] is None:
        return bool(job["exit_code"] == 0)
    runs, state = job["score"]["runs"], state_of(job["score"]["valid"], job["score"]["reasons"])
    good = len(runs) == job["runs"] and all(run["converged"] and run["compliant"] for run in runs)
    return state == INCOMPLETE and good


def outcomes(folder: Path) -> list[dict[str, Any]]:
    """One object per job, for the table: `number`, `overrides`, `exit_code` (None if a job left nothing), `said`
    (its last line on standard error), `runs` (planned number; None without a plan), `queued` (in a batch system),
    and `score` (the object of its score.json, or None)."""
    jobs = []
    for number, overrides in enumerate(files.read_json(folder / "sweep.json")):
        path, campaign = folder / f"{number}.json", folder / str(number)
        plan, score = campaign / "plan.json", campaign / "score.json"
        planned = files.read_json(plan) if plan.exists() else {}
        ending = files.read_json(path) if path.exists() else {"exit_code": None, "said": LOST}
        jobs.append(
            {
                "number": number,
                "overrides": overrides,
                **ending,
                "runs": len(planned["jobs"]) if planned else None,
                "queued": planned.get("launcher") in discover.launchers()
                and discover.has_queue(planned["launcher"]),
                "score": files.read_json(score) if score.exists() else None,
            }
        )
    return jobs
