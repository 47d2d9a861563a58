"""Failures of a run: deaths of its processes, found when it is over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train_bench.campaign import stalled_collective
from train_bench.core import files
from train_bench.core.excerpt import last_error
from train_bench.core.job import Job, exit_file
from train_bench.errors import LogError
from train_bench.launcher import Death, Launcher
from train_bench.plan.process import Ended

STALLED = "stall_limit_seconds"
"""Word in the sentence of a rank whose watchdog has ended it."""

PREEMPTED = "preempted"
"""First word of the end of ranks that were warned and left behind a checkpoint; their state."""

BY_BUDGET = "ended_by_budget"
"""Key of `exit.json` in a run that its budget has ended."""


LOST_CONNECTION = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|ncclRemoteError|remote process exited"
)
"""What Gloo and NCCL say of a rank that has gone."""


def deaths(
    job: Job, launcher: Launcher, ended: Ended, elsewhere: Sequence[Death], *, whole: bool
) -> tuple[Death, ...]:
    """Deaths of a run, with their causes; empty for a good run: its log is `whole` and its ranks ended well, or had
    all finished before something went wrong at their end.

    A passed limit comes first, then ranks that were killed: the others mostly died of their absence. Then failures
    of other hosts as a whole, and the ranks' own errors, including those that could not even join; then the
    launcher's errors. `elsewhere` are the deaths that other hosts report.
    """
    of_ranks = _deaths_of_ranks(job)
    if ended.reason is not None:
        said = None if of_ranks or any(job.ranks_folder.glob("rank_*.json")) else last_error(ended.stderr)
        own = () if said is None else (Death(rank=None, how=f"last error of the launcher: {said}"),)
        return (Death(rank=None, how=ended.reason), *own, *of_ranks, *_stall(job, of_ranks))
    if whole and (ended.exit_code == 0 or _all_finished(job)):
        return ()
    if (preempted := _preempted(job)) is not None:
        return (preempted,)
    reported = (*launcher.deaths(ended.exit_code, ended.stderr), *elsewhere)
    killed = tuple(dict.fromkeys(death for death in reported if death.how.startswith("killed by")))
    beyond = tuple(death for death in elsewhere if death.rank is None)
    said = last_error(ended.stderr)
    how = (
        f"the launcher ended with exit code {ended.exit_code}, and the log has no run_stop"
        f"{f'; its last error: {said}' if said else ''}"
    )
    return killed or (*beyond, *of_ranks, *_stall(job, of_ranks)) or reported or (Death(rank=None, how=how),)


def _stall(job: Job, of_ranks: Sequence[Death]) -> tuple[Death, ...]:
    """The collective that ranks waited in, where that is why they ended."""
    if not any(STALLED in death.how for death in of_ranks):
        return ()
    said = stalled_collective.sentence(job)
    return () if said is None else (Death(rank=None, how=said),)


def _preempted(job: Job) -> Death | None:
    """End of ranks that left behind a checkpoint. One that says so has written its own with all others."""
    for path in job.ranks_folder.glob("rank_*.json"):
        state = state_of(path)
        if state.get("state") == PREEMPTED:
            return Death(rank=None, how=f"{PREEMPTED} ({state.get('error')})")
    return None


def pending(jobs: Sequence[Job], *, retry_failed: bool) -> tuple[Job, ...]:
    """Runs without a result, and the failed ones if they are to be repeated."""
    failed = failed_runs(jobs)
    again = failed if retry_failed else ()
    return tuple(job for job in jobs if not job.result_file.exists() or job.index in again)


def failed_runs(jobs: Sequence[Job]) -> tuple[int, ...]:
    """Indices of the runs whose processes died. One ended by its budget is not among them: it would be ended again."""
    return tuple(job.index for job in jobs if _has_failed(exit_file(job.ranks_folder)))


def _has_failed(path: Path) -> bool:
    """True for an `exit.json` with deaths that no budget has caused. Raises `LogError` if it has no valid ones."""
    if not path.exists():
        return False
    content = files.read_json(path)
    deaths = content.get("deaths") if isinstance(content, dict) else None
    if not isinstance(deaths, list):
        raise LogError(f"{path} has no valid deaths of the processes; remove it to continue.")
    return bool(deaths) and not content.get(BY_BUDGET)


def _all_finished(job: Job) -> bool:
    states = [state_of(path).get("state") for path in job.ranks_folder.glob("rank_*.json")]
    return states.count("finished") == job.world_size


def _deaths_of_ranks(job: Job) -> tuple[Death, ...]:
    """The ranks' own errors at their end; the same sentence of several ranks once. Ranks that have lost a connection
    died of another's absence, and are left out where that one has an error."""
    deaths_by_error: dict[str, Death] = {}
    paths = job.ranks_folder.glob("rank_*.json")
    for path in sorted(paths, key=lambda path: int(path.stem.removeprefix("rank_"))):
        state = state_of(path)
        if state.get("state") == "failed":
            rank = int(path.stem.removeprefix("rank_"))
            deaths_by_error.setdefault(state["error"], Death(rank=rank, how=f"failed: {state['error']}"))
    arrived = map(state_of, sorted(job.ranks_folder.glob("arrived/*")))
    refused = next((state["error"] for state in arrived if "error" in state), None)
    if refused is not None and not deaths_by_error:
        return (Death(rank=None, how=f"a rank could not join: {refused}"),)
    causes = tuple(death for error, death in deaths_by_error.items() if not LOST_CONNECTION.search(error))
    return causes or tuple(deaths_by_error.values())


def state_of(path: Path) -> dict[str, Any]:
    """State file of a rank; empty if it cannot be read, because it is half written."""
    return files.read_object(path)
