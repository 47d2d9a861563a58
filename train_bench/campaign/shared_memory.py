"""Size of /dev/shm that a request needs on each host: containers have 64 MB of it, unless they are given more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from train_bench.core import cores
from train_bench.core.job import Device
from train_bench.errors import RequestError
from train_bench.launcher import LauncherConfig
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.plan.run_config import RunConfig
from train_bench.task import BenchmarkConfig

NCCL_BYTES = 2**30
"""What NCCL's documentation gives a container with several GPUs."""

LEAST_BYTES = 2**26
"""What a container has by default."""

LOADERS = 2
"""Sets of loader processes of a rank: those of training and those of evaluations, which keep their batches."""

MARGIN = 2
"""Samples may be larger than synthetic ones: images come as they are, with as many objects as they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """Batches that loader processes have ready, and NCCL.

    ranks      of a host
    processes  loader processes of a rank in each of its sets
    batches    that a process holds: those that it has ready, and the one that it makes
    batch      bytes of the larger batch, of training or of an evaluation, if all samples are as synthetic ones
    nccl       bytes that NCCL needs
    """

    ranks: int
    processes: int
    batches: int
    batch: int
    nccl: int

    @property
    def total(self) -> int:
        """Bytes of a host, in whole MiB."""
        loaders = MARGIN * self.ranks * LOADERS * self.processes * self.batches * self.batch
        return -(-max(LEAST_BYTES, loaders + self.nccl) // 2**20) * 2**20

    @property
    def quantity(self) -> str:
        """The total as Kubernetes takes it."""
        return f"{self.total >> 20}Mi"

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"total": self.total, "quantity": self.quantity}


def shared_memory_of(
    benchmark: BenchmarkConfig,
    launcher: LauncherConfig,
    device: Device,
    bytes_of_batch: Callable[[int], int],
    *,
    ranks: int,
) -> SharedMemory | None:
    """What the ranks of a host need, of `ranks` in all, with the bytes of a batch of so many samples; `auto` is a GPU.
    None where it is not known: a benchmark with loading of its own, the cores of a rank that decide on its loader
    processes, samples of any size in an evaluation."""
    data: Any = getattr(benchmark, "data", None)
    own = launcher.rank_cores
    kernels = Device.cpu if device is Device.cpu else Device.cuda
    if not hasattr(data, "workers") or (data.workers is None and own is None and kernels is Device.cuda):
        return None
    processes, batch = cores.loader_processes(data.workers, kernels.value, own or 1), 0
    if processes:
        evaluated = getattr(data, "eval_batch_size", None)
        if evaluated is None:
            return None
        hyperparameters = benchmark.hyperparameters
        parts = ranks // launcher.together * hyperparameters.gradient_accumulation_steps
        batch = bytes_of_batch(max(hyperparameters.global_batch_size // parts, evaluated))
    return SharedMemory(
        ranks=launcher.nproc_per_node,
        processes=processes,
        batches=data.prefetch + 1,
        batch=batch,
        nccl=NCCL_BYTES if kernels is Device.cuda and ranks > 1 else 0,
    )


def needed(config: RunConfig, launcher: LauncherConfig, ranks: int) -> SharedMemory | None:
    """What the ranks of a launcher, of `ranks` in all, need on a host; None where it is not known. Raises
    `RequestError` where batches are to be counted and cannot be: packages of the reference are missing, or it does not
    describe its batches."""
    benchmark = config.benchmark

    def bytes_of_batch(samples: int) -> int:
        try:
            from train_bench.dry_run import step  # here, because it is an instrument

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
