"""Wall clocks of the hosts of a run, compared by its handshake: seconds by which each is ahead of host 0's."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path

from train_bench.core import files
from train_bench.core.finite_number import finite_number
from train_bench.core.job import Job

AHEAD = "ahead_seconds"
LARGEST_SECONDS = 3600.0


def _path(job: Job) -> Path:
    return job.ranks_folder / "clocks.json"


def write(job: Job, clocks: Iterable[tuple[str, float]]) -> None:
    """Write the clocks of all ranks, each with the name of its host, rank 0's first. Ranks leave the barrier before
    they read their clocks at slightly different times: the median of a host counts."""
    by_host: dict[str, list[float]] = {}
    for host, clock in clocks:
        by_host.setdefault(host, []).append(clock)
    medians = {host: statistics.median(of_host) for host, of_host in by_host.items()}
    first = next(iter(medians.values()))
    ahead = {host: round(median - first, 3) for host, median in medians.items()}
    files.write_json(_path(job), {AHEAD: ahead})


def ahead_ms(job: Job, host: str) -> int:
    """Milliseconds by which the clock of `host` is ahead of host 0's; 0 where no handshake has compared them, as for a
    program of the user's own."""
    ahead = files.read_object(_path(job)).get(AHEAD)
    seconds = finite_number(ahead.get(host), below=LARGEST_SECONDS) if isinstance(ahead, dict) else None
    return round(1000 * (seconds or 0.0))
