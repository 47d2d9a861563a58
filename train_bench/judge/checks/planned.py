"""The plan next to the logs of a campaign, as far as checks read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from train_bench.core.job import jobs_of, plan_digest
from train_bench.judge.locate import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Jobs of a plan by their index, its time, and its digest."""

    jobs: Mapping[int, Mapping[str, Any]]
    created_ms: float | None
    digest: str

    @property
    def side_by_side(self) -> bool:
        """True if runs may overlap: several jobs of a batch system."""
        launchers = (mapping(job.get("launcher_config")) for job in self.jobs.values())
        return any(count(launcher.get("parallel")) > 1 for launcher in launchers)


def planned_of(location: Location) -> Planned | None:
    """Plan next to the logs; None without one that has jobs."""
    by_index = {job["index"]: job for job in jobs_of(location.plan) if isinstance(job.get("index"), int)}
    if not by_index:
        return None
    try:
        created_ms = datetime.fromisoformat(str(location.plan.get("created"))).timestamp() * 1000
    except (ValueError, OverflowError):
        created_ms = None
    return Planned(jobs=by_index, created_ms=created_ms, digest=plan_digest(location.plan))


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def count(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 10**9 else 0
