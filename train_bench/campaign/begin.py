"""Beginning of a campaign: from a request to its plan on disk, or to the campaign that it resumes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from train_bench.campaign import command_trust, data, reference_point, refusals
from train_bench.campaign.opened import Campaign
from train_bench.core.escape import plain
from train_bench.errors import RequestError
from train_bench.judge.checks.campaign_checks import differences
from train_bench.plan.provenance import ran_with
from train_bench.plan.request import Request


def new_or_resumed(
    request: Request, warn: Callable[[str], None], *, reference_runs: bool = False
) -> Campaign:
    """New campaign of a request, whose plan is written, or the one that it resumes. Raises `RequestError` for one that
    cannot be carried out here."""
    config = request.config
    if config.resume is not None:
        return resume(request, Path(config.resume), warn)
    if config.trust:
        raise RequestError("trust=true is only for an existing campaign; give it with resume=DIR.")
    campaign = Campaign.planned(request, reference_runs=reference_runs)
    if reference_runs:
        reference_point.refuse(campaign, replace=config.replace_point, append=config.append_point)
    refusals.refuse(campaign)
    set_up(campaign)
    return campaign


def resume(request: Request, folder: Path, warn: Callable[[str], None]) -> Campaign:
    """The campaign in `folder`, which is resumed; warns if the software differs from its plan."""
    campaign = Campaign.open(folder)
    config = campaign.launcher_config
    changes = request.refuse_other_overrides(config.name, config.ON_RESUME)
    command_trust.refuse(campaign, trusted=request.config.trust)
    if changes:
        campaign = Campaign.of(campaign.plan, changes)
        reason = campaign.launcher.refuse(campaign.benchmark)
        if reason is not None:
            raise RequestError(reason)
    plan, job, rules = campaign.plan, campaign.first, campaign.rules
    changed = differences(campaign.content, ran_with(plan.reference, rules.digest, job.command, job.python))
    if changed:
        worth = "do not count as results" if rules.strict else "are reviewed"
        warn(
            f"this campaign continues with {plain('; '.join(changed))}. In {plan.ruleset}, runs that differ "
            f"from their plan {worth}."
        )
    refusals.refuse(campaign, refusals.TO_RESUME)
    if campaign.runs_elsewhere and campaign.queue is not None and campaign.queue.inside(os.environ):
        data.prepare(campaign)
    return campaign


def refused(request: Request) -> Iterator[str]:
    """The sentences with which `run` would refuse a request here that can be planned; none if it would begin."""
    try:
        campaign = Campaign.planned(request)
    except RequestError as error:
        yield str(error)
    else:
        yield from refusals.refused(campaign)


def set_up(campaign: Campaign) -> None:
    """Prepare the data of a new campaign, unless its runs are elsewhere, and write its plan; a folder that holds a
    campaign by now is refused."""
    if not campaign.runs_elsewhere:
        data.prepare(campaign)
    command_trust.note(campaign)  # before other hosts see the plan
    refusals.refuse(campaign, [refusals.folder])
    campaign.write()
