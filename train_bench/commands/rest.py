"""What is left of a campaign that goes on, or waits to be continued: when it is expected to end."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from train_bench import campaign, lock
from train_bench.errors import TrainBenchError
from train_bench.forecast.watcher import ForecastWatcher
from train_bench.judge import log, rcp
from train_bench.judge.entry import Judgement
from train_bench.plan import budget, discover
from train_bench.plan.plan import Plan
from train_bench.report import live
from train_bench.rules import ruleset


def of_entry(judgement: Judgement) -> str | None:
    """When a campaign that lacks results is expected to end, in a sentence; None where nothing can be said, or it
    lacks none."""
    planned = judgement.location.plan.get("jobs")
    if not isinstance(planned, list) or len(judgement.records) >= len(planned):
        return None
    with contextlib.suppress(TrainBenchError):  # a plan of another version, or of somebody else's benchmark
        return _of_campaign(judgement.location.folder)
    return None


def watcher(planned: Plan, only: Sequence[int] | None = None) -> ForecastWatcher:
    """What foresees the end of a campaign, or of `only` some of its runs, within the budget of each."""
    rules = ruleset.load(planned.ruleset).benchmark(planned.benchmark)
    points = rcp.load(rules, discover.rcp_folders())
    limit = budget.of(planned.jobs[0])
    minutes = None if limit is None else limit.minutes
    return ForecastWatcher(planned.jobs, rules, points, limit_minutes=minutes, only=only)


def _of_campaign(folder: Path) -> str | None:
    plan = campaign.open_folder(folder)
    expected = watcher(plan)
    expected.campaign_started(total=len(plan.jobs), done=0)
    missing = [job for job in plan.jobs if not job.result_file.exists()]
    running = [job for job in missing if lock.is_held(job.ranks_folder.with_suffix(".lock"))]
    for job in running:
        if job.growing_file.exists():
            expected.run_started(job)
            for event in log.read(job.growing_file).events:
                expected.event(event)
            break
    if expected.latest is None:
        return None
    told = live.in_a_sentence(expected.latest, datetime.now(), turns=not running)
    if running:
        return f"The campaign goes on and is {told}."
    return f"{len(missing)} run(s) are missing; {told}."
