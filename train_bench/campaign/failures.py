"""How a run ends: the limits that it is held to while it goes on, and what is found when it is over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.event import Event
from train_bench.core.job import Job, exit_file
from train_bench.errors import LogError
from train_bench.launcher import Death, Launcher
from train_bench.plan import budget
from train_bench.plan.process import Ended

GRACE_SECONDS = 10.0
"""How much later than the ranks themselves their parent sees that they hang, so that they can say where."""


BY_BUDGET = "ended_by_budget"
"""What `exit.json` has of a run that its budget has ended."""


class RunWatchdog:
    """Holds a run to its limits, seen from outside: also where the ranks can do nothing themselves, because
    they never started, or are stopped."""

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job
        self._clock = clock
        self._beat: int | None = None
        self._since = clock()

    def overdue(self) -> str | None:
        """Why the run has to be ended now, as a sentence; None while there is no reason."""
        try:
            beat = (self._job.ranks_folder / "heartbeat").stat().st_mtime_ns
        except FileNotFoundError:
            beat = None
        if beat != self._beat:
            self._beat, self._since = beat, self._clock()
        waited = self._clock() - self._since
        if self._beat is None and waited > self._job.start_limit_seconds:
            return self._not_started()
        silence = self._job.stall_limit_seconds
        if self._beat is not None and silence is not None and waited > silence + GRACE_SECONDS:
            return f"rank 0 gave no sign of life for {waited:.0f} s (stall_limit_seconds)"
        return None

    def _not_started(self) -> str:
        job = self._job
        hosts = Counter(path.name.rpartition("_")[0] for path in job.ranks_folder.glob("arrived/*"))
        started = hosts.total()
        limit = f"{job.start_limit_seconds:g} s (start_limit_seconds)"
        if started >= job.world_size and job.command is not None:
            return f"its program has written no line of its log within {limit}"
        if started >= job.world_size:
            return f"{started} ranks started, but they did not find each other within {limit}"
        where = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
        return (
            f"{job.world_size} ranks were requested, but {started} started within {limit}"
            f"{': ' if where else ''}{where}"
        )


class BudgetGuard:
    """Ends a run whose clock has counted what `stop_when=` allows; seen from here, so that the clocks of other hosts do
    not matter."""

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason: str | None = None
        self._budget = budget.of(job)
        self._clock = clock
        self._started: float | None = None

    def event(self, event: Event) -> None:
        """A new line of the run's log."""
        if event.key == "run_start" and self._started is None:
            self._started = self._clock()
        elif event.key == "run_stop":
            self._budget = None

    def spent(self) -> str | None:
        """Why the run has to be ended now, as a sentence; None while it may go on."""
        if self._budget is not None and self._started is not None:
            self.reason = self._budget.spent((self._clock() - self._started) / 60)
        return self.reason


def deaths(
    job: Job, launcher: Launcher, ended: Ended, elsewhere: Sequence[Death], *, whole: bool
) -> tuple[Death, ...]:
    """Who died, and how; nobody in a good run, which is one whose log is `whole` and whose ranks ended well, or
    had all finished before something went wrong with their ending.

    A limit that was passed comes first, then ranks that were killed: the others mostly died of their absence.
    Then what befell other hosts as a whole, and what the ranks themselves said, those included that could not even
    join; then what the launcher says. `elsewhere` is what other hosts saw.
    """
    of_ranks = _deaths_of_ranks(job)
    if ended.reason is not None:
        return (Death(rank=None, how=ended.reason), *of_ranks)
    if whole and (ended.exit_code == 0 or _all_finished(job)):
        return ()
    seen = (*launcher.deaths(ended.exit_code, ended.stderr), *elsewhere)
    killed = tuple(dict.fromkeys(death for death in seen if death.how.startswith("killed by")))
    beyond = tuple(death for death in elsewhere if death.rank is None)
    how = f"the launcher ended with exit code {ended.exit_code}, and the log has no end"
    return killed or (*beyond, *of_ranks) or seen or (Death(rank=None, how=how),)


def failed_runs(jobs: Sequence[Job]) -> tuple[int, ...]:
    """Indices of the runs whose processes died. One that its budget has ended is none of them: it would be ended
    again."""
    failed = []
    for job in jobs:
        path = exit_file(job.ranks_folder)
        if path.exists() and _deaths_in(path) and not files.read_json(path).get(BY_BUDGET):
            failed.append(job.index)
    return tuple(failed)


def _deaths_in(path: Path) -> list[str]:
    """The `deaths` of an `exit.json`. Raises `LogError` where it says none of the kind."""
    content = files.read_json(path)
    deaths = content.get("deaths") if isinstance(content, dict) else None
    if not isinstance(deaths, list):
        raise LogError(f"{path} does not say how the processes of its run ended; remove it to go on.")
    return [str(death) for death in deaths]


def _all_finished(job: Job) -> bool:
    states = [state_of(path).get("state") for path in job.ranks_folder.glob("rank_*.json")]
    return states.count("finished") == job.world_size


def _deaths_of_ranks(job: Job) -> tuple[Death, ...]:
    """What ranks said of their own end; the same sentence of several ranks once."""
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
    return tuple(deaths_by_error.values())


def state_of(path: Path) -> dict[str, Any]:
    """What a rank has written of itself; empty where that cannot be read, because it is half written."""
    try:
        state = files.read_json(path)
    except LogError:
        return {}
    return state if isinstance(state, dict) else {}
