"""Ranks of a job that is no run of a campaign: they do other work with a reference (`Job.work`), under any launcher
that starts its processes from here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from train_bench.campaign import refusals
from train_bench.campaign.failures import deaths
from train_bench.campaign.opened import Campaign
from train_bench.core import rank_messages
from train_bench.core.job import Job
from train_bench.errors import LaunchError, RequestError
from train_bench.observers.limits import RunWatchdog
from train_bench.plan import process


def refuse(campaign: Campaign, work: str) -> None:
    """Raise `RequestError` if ranks of this campaign cannot be started from here for such `work`."""
    queue, job = campaign.queue, campaign.first
    if campaign.program is not None:
        raise RequestError(f"{work} needs a reference; leave command= out.")
    if campaign.launcher_config.joining:
        raise RequestError(
            f"{work} starts all processes from here, but launcher={job.launcher} on {job.nodes} "
            "hosts needs hosts that join; choose launcher.nodes=1, or a launcher that starts ranks on all "
            "hosts."
        )
    if queue is not None and not queue.inside(os.environ):
        raise RequestError(
            f"{work} submits no batch jobs; run it inside an allocation, or choose another launcher."
        )
    here = replace(campaign.with_job(replace(job, python=None)), queue=None)
    refusals.refuse(here, [*refusals.TO_CONTINUE, refusals.caches, refusals.gpus])


def carry_out(campaign: Campaign, work: str, options: Mapping[str, Any], folder: Path) -> Job:
    """Start the ranks of the campaign's first job in `folder`, which is empty or does not exist, and wait until they
    have done their `work`. Returns the job that they got.

    Raises `LaunchError` with a sentence that names the dead rank and its cause of death; no process is left then.
    """
    first = replace(campaign.first, python=None)  # a third-party plan does not choose what is started
    job = replace(first, folder=folder.resolve(), index=0, work=work, work_options=options)
    shutil.rmtree(job.ranks_folder, ignore_errors=True)
    rank_messages.make_token(job.ranks_folder)
    campaign.with_job(job).write()
    launcher = campaign.launcher
    ended = process.carry_out(
        launcher.launch(job, process.rank_argv(job)), job.ranks_folder, RunWatchdog(job).tick, name=work
    )
    died = deaths(job, launcher, ended, (), whole=True)
    if died:
        how = "; ".join(map(str, died)).removesuffix(".")
        raise LaunchError(f"{work} failed: {how}. Output of its ranks is in {job.ranks_folder}.")
    return job
