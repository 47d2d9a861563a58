"""CPU cores that this process may use, those of them that are its rank's own, and the loader processes for them.

Ranks of a host share a core that several of them may use, and the CPU quota of a group that several of them are in. So
ranks that a batch system binds to cores of their own keep them all, others get equal parts, and nothing is divided
twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from train_bench.core.control_groups import cpu_groups, text


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreLimits:
    """Limits of one process: its affinity mask, the quotas in cores by control group, and the cores that a batch system
    gives it for itself (None: it does not say)."""

    mask: frozenset[int]
    quotas: Mapping[str, float] = field(default_factory=dict)
    task: int | None = None


_task: int | None = None
_rank: int | None = None


def limit_task(count: int) -> None:
    """State what the batch system gives this process for itself, which its mask may not show."""
    global _task
    _task = count


def limits() -> CoreLimits:
    """Limits of this process."""
    if hasattr(os, "sched_getaffinity"):
        mask = frozenset(os.sched_getaffinity(0))
    else:
        mask = frozenset(range(os.cpu_count() or 1))
    return CoreLimits(mask=mask, quotas=dict(_quotas()), task=_task)


def usable_cores() -> int:
    """Cores that this process may use: those of its affinity mask, at most its CPU quota rounded down, at least 1."""
    own = limits()
    return share(own, [own])


def share(own: CoreLimits, host: Sequence[CoreLimits]) -> int:
    """Cores of one rank among the ranks of its host, which include it."""
    parts = [sum(1 / sum(core in other.mask for other in host) for core in own.mask)]
    parts += [quota / sum(group in other.quotas for other in host) for group, quota in own.quotas.items()]
    parts += [] if own.task is None else [own.task]
    return max(1, int(min(parts) + 1e-6))


def set_rank_cores(count: int) -> None:
    """Set the cores of the rank that this process is."""
    global _rank
    _rank = count


def rank_cores() -> int:
    """Cores of this rank; of a process that is none, those that it may use."""
    return _rank or usable_cores()


def loader_processes(workers: int | None, device_type: str, cores: int) -> int:
    """Loader processes of a rank with so many cores: as many as configured. By default, with an accelerator one for
    every core but one, which the training thread has; on a CPU none, as training takes all cores there."""
    if workers is not None:
        return workers
    return 0 if device_type == "cpu" else max(1, cores - 1)


def _quotas() -> Iterator[tuple[str, float]]:
    """Control groups with a quota, and its cores."""
    for group in cpu_groups():
        quota, _, period = text(group / "cpu.max").partition(" ")
        if not quota:
            quota, period = text(group / "cpu.cfs_quota_us"), text(group / "cpu.cfs_period_us")
        # v2 says `max 100000`, v1 -1, where there is no limit
        if quota.strip().isdecimal() and period.strip().isdecimal() and int(period):
            yield str(group), int(quota) / int(period)
