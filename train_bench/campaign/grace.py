"""Time that ranks have for a checkpoint when they are warned of their end, from the measured time of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from train_bench.core.job import Job
from train_bench.logs import log
from train_bench.logs.restarts import restarts_of, together
from train_bench.plan import earlier
from train_bench.plan.plan import Plan, as_json
from train_bench.plan.run_config import RunConfig

FACTOR = 2.0
"""Of the mean time: the first checkpoint, and one while other hosts are ended, take longer."""

MOST_SECONDS = 600.0
"""Longer ones are believed of nobody's log."""


def with_grace(plan: Plan, config: RunConfig) -> Plan:
    """The plan of a request with the time of checkpoints in the latest campaign like it, unless one was requested."""
    if config.checkpoint_seconds is None or config.grace_seconds is not None:
        return plan
    measured = earlier.checkpoint_seconds(json.loads(json.dumps(as_json(plan))), plan.jobs[0].folder)
    return replace(plan, jobs=tuple(_longer(job, measured) for job in plan.jobs))


def continued(job: Job, request: Mapping[str, Any]) -> Job:
    """A run of a campaign that continues: with the time of the checkpoints of its finished runs, if that is longer and
    no time was requested."""
    words = request.get("overrides")
    requested = isinstance(words, list) and any(
        str(word).lstrip("+").startswith("grace_seconds=") for word in words
    )
    if job.checkpoint_seconds is None or requested:
        return job
    logs = sorted(job.folder.glob("result_*.txt"))
    runs = together(restarts_of(log.read(path)) for path in logs)
    return job if runs is None else _longer(job, runs.as_json()["checkpoint"])


def _longer(job: Job, measured: float | None) -> Job:
    if measured is None:
        return job
    return replace(job, grace_seconds=max(job.grace_seconds, min(FACTOR * measured, MOST_SECONDS)))
