"""Start of a campaign: it begins or is resumed, and its runs are carried out."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from train_bench.campaign import advice, batch_queue, begin, watching
from train_bench.plan.request import Request

Say = Callable[[str], None]


def carry_out(request: Request, say: Say, warn: Say, *, reference_runs: bool = False) -> Path | None:
    """Run a new campaign, or the missing runs of an existing one. Returns its folder; None if it is not to be judged
    now, because it waits in a queue or only a part of it was run here."""
    campaign = begin.new_or_resumed(request, warn, reference_runs=reference_runs)
    queue = campaign.queue
    if queue is not None and not queue.inside(os.environ):
        return campaign.folder if batch_queue.carry_out(campaign, request.config, say) else None
    if (slow := advice.on_precision(campaign)) is not None:
        warn(slow)
    say(f"{len(campaign.jobs)} run(s) of {campaign.plan.variant} in {campaign.folder}")
    places = watching.tracking_places(campaign)
    for place in places:
        say(place)
    for overrides in campaign.launcher_config.joining if queue is None else ():
        say(f"run on another host: train-bench join {shlex.quote(str(campaign.folder))} {overrides}")
    for _ in watching.each_run(campaign, request, say):  # each step is a run, which its observers see
        pass
    for place in places:
        say(place)
    return campaign.folder if request.config.only is None else None
