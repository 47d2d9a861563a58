"""Energy meter of a campaign on this host, and the times between which a run counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from train_bench.campaign.opened import Campaign
from train_bench.core.job import Job
from train_bench.energy.meter import Meter, StepMeter
from train_bench.logs.log import read


def meter(campaign: Campaign, say: Callable[[str], None]) -> Meter | StepMeter:
    """Energy meter of the hosts that nobody joins by hand: of this one, or of all where the launcher starts samplers
    beside its ranks. If it does not, there is none, because the others would be missing."""
    wished, job = campaign.energy, campaign.first
    options = job.launcher_config
    at_once = (
        1 if options.get("array") else options.get("parallel") or 1
    )  # runs of one batch job, on hosts of their own
    reached = job.nodes * at_once
    if wished is not None and reached > 1 and not campaign.launcher_config.joining:
        if on_each_node := getattr(campaign.launcher, "on_each_node", None):
            return StepMeter(wished, job.folder, say, partial(on_each_node, job), hosts=job.nodes)
        say(
            f"energy: not measured, because launcher={job.launcher} starts ranks on {reached} hosts and "
            "only this one could be read."
        )
        wished = None
    return Meter(wished, job.folder, say, hosts=job.nodes)


def meter_of_host(campaign: Campaign, say: Callable[[str], None], *, host: int) -> Meter:
    """Energy meter of a host that has joined."""
    job = campaign.first
    return Meter(campaign.energy, job.folder, say, host=host, hosts=job.nodes)


def timed(job: Job) -> tuple[int | None, int | None]:
    """Start and stop of the clock of a run, in milliseconds since the epoch."""
    for path in (job.result_file, job.partial_log, job.result_file):  # it may be given its name just now
        if path.is_file():
            events = read(path).events
            start, stop = events.first("run_start"), events.first("run_stop")
            return start and start.time_ms, stop and stop.time_ms
    return None, None
