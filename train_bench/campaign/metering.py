"""Energy meter of a campaign on this host, and the times between which a run counts."""

from __future__ import annotations

from collections.abc import Callable

from train_bench.campaign.opened import Campaign
from train_bench.core.job import Job
from train_bench.energy.meter import Meter
from train_bench.logs.log import read


def meter(campaign: Campaign, say: Callable[[str], None], *, host: int = 0) -> Meter:
    """Energy meter of this host. If a launcher starts ranks on hosts that nobody joins by hand, there is none,
    because the others would be missing."""
    wished, job = campaign.energy, campaign.first
    options = job.launcher_config
    at_once = (
        1 if options.get("array") else options.get("parallel") or 1
    )  # runs of one batch job, on hosts of their own
    reached = job.nodes * at_once
    if wished is not None and reached > 1 and not campaign.launcher_config.joining:
        say(
            f"energy: not measured, because launcher={job.launcher} starts ranks on {reached} hosts and "
            "only this one could be read."
        )
        wished = None
    return Meter(wished, job.folder, say, host=host, hosts=job.nodes)


def timed(job: Job) -> tuple[int | None, int | None]:
    """Start and stop of the clock of a run, in milliseconds since the epoch."""
    for path in (job.result_file, job.partial_log, job.result_file):  # it may be given its name just now
        if path.is_file():
            events = read(path).events
            start, stop = events.first("run_start"), events.first("run_stop")
            return start and start.time_ms, stop and stop.time_ms
    return None, None
