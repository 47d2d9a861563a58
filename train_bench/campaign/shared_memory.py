"""Size of /dev/shm that a request needs on each host."""

from __future__ import annotations

from dataclasses import replace

from train_bench.dry_run.shared_memory import SharedMemory, shared_memory_of
from train_bench.errors import RequestError
from train_bench.launcher import LauncherConfig
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.plan.run_config import RunConfig


def needed(config: RunConfig, launcher: LauncherConfig, ranks: int) -> SharedMemory | None:
    """What the ranks of a launcher, of `ranks` in all, need on a host; None where it is not known. Raises
    `RequestError` where batches are to be counted and cannot be: packages of the reference are missing, or it does not
    describe its batches."""
    benchmark = config.benchmark

    def bytes_of_batch(samples: int) -> int:
        try:
            from train_bench.dry_run import step  # here, because it imports torch

            make = discover.task(benchmark.reference)
        except ImportError as error:
            raise RequestError(
                f"The batches of {benchmark.benchmark} cannot be counted here: {error}."
            ) from error
        return step.bytes_of_batch(make, benchmark, samples, ranks=ranks, together=launcher.together)

    return shared_memory_of(benchmark, launcher, config.device, bytes_of_batch, ranks=ranks)


def with_limit(plan: Plan, config: RunConfig, *, shipped: bool) -> Plan:
    """The plan of a request with the size in the option of its launcher that limits /dev/shm, if it has one and nothing
    was requested. A program of the user's own, and a benchmark that is not shipped, load in their own way."""
    launcher = config.launcher
    option = launcher.SHARED_MEMORY
    if option is None or config.command is not None or not shipped or getattr(launcher, option) is not None:
        return plan
    try:
        need = needed(config, launcher, launcher.world_size)
    except RequestError:  # the limit is that of the pod
        return plan
    if need is None:
        return plan
    limit = {option: need.quantity}
    jobs = (replace(job, launcher_config={**job.launcher_config, **limit}) for job in plan.jobs)
    return replace(plan, jobs=tuple(jobs))
