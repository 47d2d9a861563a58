"""Start of a campaign: from a request to its plan, and from the plan to its runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from train_bench.campaign import batch_queue, command_trust, data, reference_point, refusals, runner, status
from train_bench.campaign.opened import Campaign
from train_bench.core import instruments
from train_bench.core.escape import plain
from train_bench.core.job import Job
from train_bench.errors import RequestError
from train_bench.judge.checks.campaign_checks import differences
from train_bench.observers.observer import Observer, Observers
from train_bench.observers.terminal import Terminal, sweep_job
from train_bench.observers.tracking import NONE, Tracking, named, places
from train_bench.plan.provenance import ran_with
from train_bench.plan.request import Request
from train_bench.plan.run_config import OnFailure, OnViolation
from train_bench.report.console import make_console, print_line

if TYPE_CHECKING:
    from train_bench.forecast.live import Forecast

Say = Callable[[str], None]


def carry_out(request: Request, say: Say, warn: Say, *, reference_runs: bool = False) -> Path | None:
    """Run a new campaign, or the missing runs of an existing one. Returns its folder; None if it is not to be judged
    now, because it waits in a queue or only a part of it was run here."""
    campaign = _begun(request, warn, reference_runs=reference_runs)
    queue = campaign.queue
    if queue is not None and not queue.inside(os.environ):
        return campaign.folder if batch_queue.carry_out(campaign, request.config, say) else None
    say(f"{len(campaign.jobs)} run(s) of {campaign.plan.variant} in {campaign.folder}")
    for place in tracking_places(campaign):
        say(place)
    for overrides in campaign.launcher_config.joining:
        say(f"run on another host: train-bench join {shlex.quote(str(campaign.folder))} {overrides}")
    for _ in each_run(campaign, request, say):  # each step is a run, which its observers see
        pass
    for place in tracking_places(campaign):
        say(place)
    return campaign.folder if request.config.only is None else None


def tracking_places(campaign: Campaign) -> list[str]:
    """Sentence for each tracker of a campaign."""
    return places(campaign.folder, named(campaign.plan.request.get("tracking", NONE)))


def _begun(request: Request, warn: Say, *, reference_runs: bool) -> Campaign:
    """New campaign, or the resumed one."""
    config = request.config
    if config.resume is not None:
        request.refuse_other_overrides()
        campaign = reopen(Path(config.resume), trusted=config.trust, warn=warn)
        if campaign.queue is not None:
            for sentence in batch_queue.unreachable(campaign.queue):
                raise RequestError(sentence)
        return campaign
    if config.only is not None or config.trust:
        option = "trust=true" if config.only is None else "only=[RUN,...]"
        raise RequestError(f"{option} is only for an existing campaign; give it with resume=DIR.")
    campaign = Campaign.planned(request, reference_runs=reference_runs)
    if reference_runs:
        reference_point.refuse(campaign, replace=config.replace_point, append=config.append_point)
    refusals.refuse(campaign)
    begin(campaign)
    return campaign


def reopen(folder: Path, *, trusted: bool, warn: Say) -> Campaign:
    """Campaign that is resumed; warns if the software differs from its plan."""
    campaign = Campaign.open(folder)
    command_trust.refuse(campaign, trusted=trusted)
    _warn_of_differences(campaign, warn)
    refusals.refuse(campaign, refusals.TO_CONTINUE)
    return campaign


def refused(request: Request) -> Iterator[str]:
    """The sentences with which `run` would refuse a request here that can be planned; none if it would begin."""
    try:
        campaign = Campaign.planned(request)
    except RequestError as error:
        yield str(error)
    else:
        yield from refusals.refused(campaign)


def begin(campaign: Campaign) -> None:
    """Prepare the data of a campaign and write its plan."""
    data.prepare(campaign)
    command_trust.note(campaign)  # before other hosts see the plan
    write_plan(campaign)


def write_plan(campaign: Campaign) -> None:
    """Write the plan into a folder of its own; a folder that already holds a campaign is refused."""
    refusals.refuse(campaign, [refusals.folder])
    campaign.write()


def each_run(campaign: Campaign, request: Request, say: Say, *, side: str = "") -> Generator[Job, None, None]:
    """Runs of a campaign, one at each step, by the options of the request."""
    config = request.config
    return runner.run_each(
        campaign,
        _observers(campaign, only=config.only, side=side),
        retry_failed=config.retry_failed,
        go_on=config.on_failure is OnFailure["continue"],
        strict=config.on_violation is OnViolation.stop,
        only=config.only,
        say=lambda text: say(side + text),
    )


def _observers(campaign: Campaign, *, only: Sequence[int] | None, side: str = "") -> Observer:
    """Observers: the forecast, the console, and the trackers of the plan."""
    console, asked = make_console(), campaign.plan.request
    expected = status.forecast_observer(campaign, only)
    if (lack := instruments.missing("forecast")) is not None:
        print_line(console, f"The end of the campaign is not forecast: {lack}")

    def forecast() -> Forecast | None:
        return None if expected is None else expected.latest

    trackers = [
        Tracking(
            name,
            campaign.jobs,
            campaign.content | {"jobs": len(campaign.jobs)},
            rcp_folders=campaign.rcp_folders,
            online=asked["tracking_online"],
            limit_seconds=asked["tracking_limit_seconds"],
            say=lambda text: print_line(console, text),
            forecast=forecast,
        )
        for name in named(asked.get("tracking", NONE))
    ]
    job, alone = sweep_job()
    terminal = Terminal(console, side=job + side, alone=alone, turns=side != "", forecast=forecast)
    return Observers([*([] if expected is None else [expected]), terminal, *trackers])


def _warn_of_differences(campaign: Campaign, warn: Say) -> None:
    """Warn before any run if a resumed campaign has other software than planned."""
    plan, job, rules = campaign.plan, campaign.first, campaign.rules
    changed = differences(asdict(plan), ran_with(plan.reference, rules.digest, job.command, job.python))
    if changed:
        worth = "do not count as results" if rules.strict else "are reviewed"
        warn(
            f"this campaign continues with {plain('; '.join(changed))}. In {plan.ruleset}, runs that differ "
            f"from their plan {worth}."
        )
