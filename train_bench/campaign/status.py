"""Status of a campaign besides its score: expected end, and costs of failures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from train_bench.campaign import checkpoint_interval, lock
from train_bench.campaign.opened import Campaign
from train_bench.campaign.watching import forecast_observer
from train_bench.core.job import Job, jobs_of
from train_bench.errors import LogError, TrainBenchError
from train_bench.judge import summary
from train_bench.judge.entry import Judgement
from train_bench.judge.tree import Judged
from train_bench.logs import log
from train_bench.logs.record import RunRecord, read_record
from train_bench.observers import terminal
from train_bench.plan import fault_plan
from train_bench.report.page.facts import cost_of
from train_bench.rules.ruleset import BenchmarkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Progress of a campaign: the log of each run so far (None without one), the number of finished runs, whether
    another process carries out more, and the sentence on the missing ones."""

    campaign: Campaign
    records: tuple[RunRecord | None, ...]
    finished: int
    running: bool
    expected: str | None


def standing(campaign: Campaign) -> Standing:
    """Current progress."""
    return Standing(
        campaign=campaign,
        records=tuple(_record(job, campaign.rules) for job in campaign.jobs),
        finished=sum(job.result_file.exists() for job in campaign.jobs),
        running=bool(_running(campaign)),
        expected=_expected(campaign),
    )


def expected_ends(judgements: Iterable[Judgement]) -> dict[Path, str]:
    """`expected_end` of each campaign that has one, by folder."""
    return {one.location.folder: end for one in judgements if (end := expected_end(one)) is not None}


def expected_end(judgement: Judgement) -> str | None:
    """Expected end of a campaign that lacks results, as a sentence; None if it is unknown, or no result is missing."""
    planned = judgement.location.plan.get("jobs")
    if not isinstance(planned, list) or len(judgement.records) >= len(planned):
        return None
    with contextlib.suppress(TrainBenchError):  # a plan of another version, or of somebody else's benchmark
        return _expected(Campaign.open(judgement.location.folder))
    return None


def restarts_of(judgement: Judgement) -> dict[str, Any] | None:
    """Costs of checkpoints and failures in the runs of a campaign, and the expectation by Young's and Daly's
    formulas for the requested mean time between failures, else for the observed one; None without such runs."""
    measured = judgement.restarts
    if measured is None:
        return None
    faults = next((job.get("faults") for job in jobs_of(judgement.location.plan)), None)
    mtbf = measured.seconds / measured.failures if measured.failures else None
    with contextlib.suppress(TrainBenchError):  # somebody else's plan
        mtbf = fault_plan.read(faults).seconds if isinstance(faults, str) else mtbf
    expected = None if mtbf is None else checkpoint_interval.expected(measured, mtbf)
    return measured.as_json() | {"expected": expected}


def scores_as_json(
    judged: Judged, *, prices: Mapping[str, float] | None = None, reference: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Object of `score --json`: its entries with what they cost at `prices` and as a part of `reference` minutes."""
    return {
        "entries": [
            one.score.as_json()
            | one.origin
            | one.energy_as_json()
            | {
                "peers": one.peers_as_json(),
                "restarts": restarts_of(one),
                "normalised": summary.normalised(one.score, reference or {}),
                "cost": cost_of(one.score, prices or {}),
            }
            for one in judged.entries
        ],
        "unjudged": judged.unjudged,
        "skipped": judged.skipped,
        "summary": None,
    }


def _record(job: Job, rules: BenchmarkRules) -> RunRecord | None:
    for path in (job.result_file, job.partial_log, job.result_file):  # it may be given its name just now
        if path.is_file():
            with contextlib.suppress(LogError):
                return read_record(path, rules)[0]
    return None


def _missing(campaign: Campaign) -> list[Job]:
    return [job for job in campaign.jobs if not job.result_file.exists()]


def _running(campaign: Campaign) -> list[Job]:
    return [job for job in _missing(campaign) if lock.is_held(job.ranks_folder.with_suffix(".lock"))]


def _expected(campaign: Campaign) -> str | None:
    expected = forecast_observer(campaign)
    if expected is None:
        return None
    expected.campaign_started(total=len(campaign.jobs), done=0)
    running = _running(campaign)
    for job in running:
        if job.partial_log.exists():
            expected.run_started(job)
            for event in log.read(job.partial_log).events:
                expected.event(event)
            break
    if expected.latest is None:
        return None
    forecast = terminal.in_a_sentence(expected.latest, datetime.now(), turns=not running)
    if running:
        return f"The campaign is running: {forecast}."
    return f"{len(_missing(campaign))} run(s) are missing; {forecast}."
