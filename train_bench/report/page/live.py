"""Progress of a campaign, run by run, for a page that is rewritten while it runs: it has no plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from train_bench.core.job import Job
from train_bench.logs.record import DIED, RunRecord
from train_bench.logs.timeline import as_text

AGAIN_SECONDS = 3
"""Refresh interval of the page."""


def rows(jobs: Sequence[Job], records: Sequence[RunRecord | None]) -> list[Mapping[str, Any]]:
    """One for each run, with its evaluations as (position, minutes, quality)."""
    return [_row(job, record) for job, record in zip(jobs, records, strict=True)]


def _row(job: Job, record: RunRecord | None) -> Mapping[str, Any]:
    row = {
        "run": job.index,
        "seed": job.seed,
        "state": "waits",
        "log_grows": False,
        "minutes": None,
        "evaluations": [],
    }
    if record is None:
        return row
    grows = not job.result_file.exists()
    began = record.started_ms
    state = ("is running" if record.status == DIED else "ends") if grows else record.status
    return row | {
        "state": state,
        "log_grows": grows,
        "minutes": record.minutes,
        "evaluations": [
            (one.position, None if began is None else (one.time_ms - began) / 60_000, as_text(one.value))
            for one in record.evaluations
        ],
    }
