"""Runs of a campaign under its observers: the forecast of its end, the console, and the trackers of its plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from train_bench.campaign import runner
from train_bench.campaign.opened import Campaign
from train_bench.core import instruments
from train_bench.core.job import Job
from train_bench.observers import trainer_status
from train_bench.observers.observer import Observer, Observers
from train_bench.observers.sender import Sender
from train_bench.observers.terminal import Terminal, sweep_job
from train_bench.observers.tracking import NONE, Tracking, named, places
from train_bench.observers.trainer_status import TrainerStatus
from train_bench.plan import budget
from train_bench.plan.request import Request
from train_bench.plan.run_config import OnFailure, OnViolation
from train_bench.report.console import make_console, print_line

if TYPE_CHECKING:
    from train_bench.forecast.live import Forecast
    from train_bench.observers.forecast import ForecastObserver


def tracking_places(campaign: Campaign) -> list[str]:
    """Sentence for each tracker of a campaign."""
    trackers = _trackers(campaign)
    return places(campaign.folder, trackers)


def each_run(
    campaign: Campaign, request: Request, say: Callable[[str], None], *, side: str = ""
) -> Generator[Job, None, None]:
    """Runs of a campaign under its observers, one at each step, by the options of the request."""
    config = request.config
    observers = _observers(campaign, only=config.only, side=side)
    if campaign.runs_elsewhere:
        observers = Observers([observers, Sender(campaign.folder, say, config.only)])
    return runner.run_each(
        campaign,
        observers,
        retry_failed=config.retry_failed,
        go_on=config.on_failure is OnFailure["continue"],
        strict=config.on_violation is OnViolation.stop,
        only=config.only,
        say=lambda text: say(side + text),
    )


def _observers(campaign: Campaign, *, only: Sequence[int] | None, side: str = "") -> Observer:
    """All observers of a campaign, or of `only` some of its runs. `side` goes before the lines of one of two
    campaigns."""
    console, asked = make_console(), campaign.plan.request
    expected = forecast_observer(campaign, only, lacking=lambda lack: print_line(console, lack))

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
        for name in _trackers(campaign)
    ]
    job, alone = sweep_job()
    terminal = Terminal(console, side=job + side, alone=alone, turns=side != "", forecast=forecast)
    told = [TrainerStatus(os.environ, forecast, lambda text: print_line(console, text))]
    reports = told if trainer_status.URL in os.environ else []
    return Observers([*([] if expected is None else [expected]), terminal, *trackers, *reports])


def forecast_observer(
    campaign: Campaign,
    only: Sequence[int] | None = None,
    lacking: Callable[[str], None] = lambda _lack: None,
) -> ForecastObserver | None:
    """Observer that forecasts the end of a campaign, or of `only` some of its runs, within the budget of each; None
    where forecasts are not installed, after a sentence to `lacking`."""
    if (lack := instruments.missing("forecast")) is not None:
        lacking(f"The end of the campaign is not forecast: {lack}")
        return None
    from train_bench.observers.forecast import ForecastObserver

    limit = budget.of(campaign.first)
    minutes = None if limit is None else limit.minutes
    return ForecastObserver(campaign.jobs, campaign.rules, campaign.points, limit_minutes=minutes, only=only)


def _trackers(campaign: Campaign) -> tuple[str, ...]:
    return named(campaign.plan.request.get("tracking", NONE))
