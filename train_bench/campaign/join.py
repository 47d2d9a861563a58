"""Every host but the first of a campaign that is started by hand: carries out its part of the runs that host 0
starts, in lock-step, and neither follows a log nor judges."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.campaign import command_trust, data, hosts, lock, metering, refusals
from train_bench.campaign.failures import deaths
from train_bench.campaign.opened import Campaign
from train_bench.core import files, host_clocks, pod_variables, preemption
from train_bench.core.address import refuse_address
from train_bench.core.job import Job
from train_bench.energy.meter import Meter
from train_bench.errors import LaunchError, LogError, RequestError, Resumable, UnknownName
from train_bench.launcher import Death, Launcher, LauncherConfig
from train_bench.observers.limits import RunWatchdog
from train_bench.own_trainer import leftovers
from train_bench.plan import process

TRUST = "trust=true"

BEGIN_SECONDS = 600.0
"""Seconds that a host waits for host 0 to begin the campaign."""

LOG_SECONDS = 5.0
"""Seconds that a host waits until the end of host 0's log is visible."""


def take_part(folder: Path, overrides: Sequence[str], tell: Callable[[str], None]) -> bool:
    """Take part in the campaign in `folder` until host 0 ends it. `overrides` name this host and its own settings
    (`launcher.interface=NAME`), and `trust=true` allows the campaign though this user has not begun it. In a pod of an
    operator, its variables name it. Returns whether all runs ended well here.

    Raises `RequestError` if there is nothing to join, `LaunchError` when host 0 starts no run within the
    limit.
    """
    _wait_for_plan(folder, tell)
    campaign = Campaign.open(folder)
    own = [override for override in overrides if override != TRUST]
    host, changes = _which(
        campaign, own if any(map(_is_rank, own)) else [*_of_pod(campaign, os.environ), *own]
    )
    command_trust.refuse(campaign, trusted=TRUST in overrides)
    campaign = Campaign.of(campaign.plan, changes)
    refusals.refuse(campaign, refusals.TO_CONTINUE)
    with lock.held(folder / "ranks" / f"host_{host}.lock", f"The part of host {host} in {folder}"):
        _prepare_data(campaign)
        read = metering.meter_of_host(campaign, tell, host=host)
        read.begin()
        try:
            return _follow(campaign, host, tell, read)
        finally:
            read.end()


def _follow(campaign: Campaign, host: int, tell: Callable[[str], None], read: Meter) -> bool:
    """Carry out this host's part of every run that host 0 announces."""
    good, done = True, set[str]()
    begun = campaign.folder / "ranks" / f"host_{host}.json"
    last = files.read_json(begun) if begun.exists() else None
    before = last.get("launch") if isinstance(last, dict) else None
    while True:
        said = _next(campaign.first, done, before)
        if said is None:
            return good
        done.add(said["launch"])
        files.write_json(begun, said)
        if said["run"] >= len(campaign.jobs):
            raise LogError(
                f"{campaign.folder / 'hosts.json'} announces run {said['run']}, and the plan has {len(campaign.jobs)} "
                "runs; start the campaign again on host 0."
            )
        job = campaign.jobs[said["run"]]
        name = f"host {host}, {job.numbered(len(campaign.jobs))}"
        tell(f"{name}: starting")
        died = _carry_out(job, campaign.launcher, host, said)
        if read.reads and not died:
            read.run_over(job, *_timed(job), ahead_ms=host_clocks.ahead_ms(job, platform.node()))
        tell(f"{name}: {'; '.join(str(death) for death in died) or 'finished'}")
        good = good and not died


def _timed(job: Job) -> tuple[int | None, int | None]:
    """Start and stop of the clock of a run that ended well; the end of its log may take a while to become visible."""
    deadline = time.monotonic() + LOG_SECONDS
    while None in (timed := metering.timed(job)) and time.monotonic() < deadline:
        time.sleep(hosts.POLL_SECONDS)
    return timed


def _prepare_data(campaign: Campaign) -> None:
    """Prepare the data of this host, in the user's own cache folder alone: the plan may be anybody's file, and does
    not decide where this host writes, unless the host is a container of its own."""
    if campaign.data_in_cache or campaign.runs_elsewhere:
        data.prepare(campaign)
    else:
        data.refuse_missing(campaign)


def _wait_for_plan(folder: Path, tell: Callable[[str], None]) -> None:
    if (folder / "plan.json").is_file():
        return
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; give the folder of host 0's output=DIR.")
    if os.path.lexists(folder / "plan.json") and not (folder / "plan.json").is_file():
        raise RequestError(
            f"{folder / 'plan.json'} is not a file, so there is no campaign to join; give the folder of host 0's "
            "output=DIR."
        )
    tell(f"waiting for host 0 to begin a campaign in {folder}")
    deadline = time.monotonic() + BEGIN_SECONDS
    while not (folder / "plan.json").is_file():
        if time.monotonic() > deadline:
            raise RequestError(
                f"Host 0 has not begun a campaign in {folder} within {BEGIN_SECONDS:g} s; give the folder "
                "of its output=DIR, on a file system that all hosts share."
            )
        time.sleep(hosts.POLL_SECONDS)


def _is_rank(override: str) -> bool:
    return override.startswith("launcher.node_rank=")


def _of_pod(campaign: Campaign, environ: Mapping[str, str]) -> Iterator[str]:
    """Overrides of a pod that an operator has numbered; none outside of one."""
    rank, config = pod_variables.node_rank(environ), campaign.launcher_config
    if rank is None or not config.joining:
        return
    refused = pod_variables.refuse_size(environ, nodes=config.nodes, world_size=config.world_size)
    if refused is not None:
        raise RequestError(refused)
    if rank == 0:
        raise RequestError(
            f"This pod is host 0, which carries out the campaign itself: train-bench run resume={campaign.folder}."
        )
    yield f"launcher.node_rank={rank}"
    # Host 0 listens at the port of the plan, whatever that of the operator.
    found = pod_variables.first_of(pod_variables.ADDRESSES, environ)
    if found is not None and hasattr(config, "master_addr"):
        yield f"launcher.master_addr={found[1]}"


def _which(campaign: Campaign, overrides: Sequence[str]) -> tuple[int, dict[str, str]]:
    """Number of this host, and its changes of the launcher's configuration."""
    plan, config = campaign.plan, campaign.launcher_config
    if not config.joining:
        raise RequestError(
            f"The plan has launcher={plan.launcher} on hosts that need not join; train-bench join is for "
            "campaigns on several hosts that are started by hand."
        )
    if all(job.result_file.exists() for job in plan.jobs):
        raise RequestError("All runs of this campaign have a result; there is nothing to join.")
    numbers = [number for number, word in enumerate(config.joining, start=1) if word in overrides]
    if len(numbers) != 1:
        raise RequestError(f"The number of this host is missing; add one of: {', '.join(config.joining)}.")
    shared = {field.name for field in dataclasses.fields(LauncherConfig)}
    own = [f"launcher.{field.name}" for field in dataclasses.fields(config) if field.name not in shared]
    changes = {}
    for word in overrides:
        name, equals, value = word.partition("=")
        if name not in own or not equals:
            raise UnknownName(what="option of a joining host", name=name, known=own)
        changes[name.removeprefix("launcher.")] = value
    for name in ("local_addr", "master_addr"):
        address = changes.get(name)
        refused = None if address is None else refuse_address(f"launcher.{name}", address)
        if refused is not None:
            raise RequestError(refused)
    return numbers[0], changes


def _next(job: Job, done: set[str], before: str | None) -> Mapping[str, Any] | None:
    """Next launch that host 0 announces, None when the campaign is over. Before our first run, `over` is the end of
    an earlier campaign, and a launch in which an earlier process of this host took part is old, the one `before`:
    host 0 was killed in it."""
    deadline = time.monotonic() + job.start_limit_seconds
    while time.monotonic() < deadline:
        said = hosts.said(job.folder)
        if said["state"] == "running" and said["launch"] not in {*done, before}:
            return said
        if said["state"] == "over" and done:
            if said.get("interrupted"):
                raise Resumable(
                    f"The campaign was interrupted. Continue with resume={job.folder} on host 0 and train-bench join "
                    "here."
                )
            return None
        time.sleep(hosts.POLL_SECONDS)
    raise LaunchError(
        f"Host 0 has not started a run for {job.start_limit_seconds:g} s (start_limit_seconds). Check host "
        f"0; continue with resume={job.folder} there and train-bench join here."
    )


def _carry_out(job: Job, launcher: Launcher, host: int, said: Mapping[str, Any]) -> tuple[Death, ...]:
    """Start and watch the processes of this host, and report their end."""
    watchdog = RunWatchdog(job)

    def over() -> bool:
        return hosts.said(job.folder) != said

    def tick() -> str | None:
        return "host 0 has ended the run" if over() else watchdog.tick()

    started = launcher.launch(job, process.rank_argv(job))

    def interrupted() -> float:
        return preemption.begin_grace(job, f"a signal to the campaign on host {host}, {platform.node()}")

    try:
        ended = process.carry_out(
            started, job.ranks_folder, tick, name=f"launcher_{host}", interrupted=interrupted
        )
    except KeyboardInterrupt:
        hosts.report(job, host, [hosts.interruption(host)], said["launch"])
        raise
    finally:
        leftovers.end(job)
    died = () if over() else deaths(job, launcher, ended, (), whole=True)
    died = tuple(_on(host, death) for death in died)
    hosts.report(job, host, died, said["launch"])
    return died


def _on(host: int, death: Death) -> Death:
    """Location of a death: a rank is known everywhere; a death without a rank needs the name of its host."""
    return death if death.rank is not None else Death(rank=None, how=f"host {host}: {death.how}")
