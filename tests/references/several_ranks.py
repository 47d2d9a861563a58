"""Real ranks of torch's data parallelism, as processes that meet through a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from multiprocessing import set_forkserver_preload
from pathlib import Path

import torch
from torch import distributed
from torch.multiprocessing import start_processes

from train_bench.core.job import Device, Job, Precision
from train_bench.launchers.parts.ddp import TorchParallel

PRELOAD = ["tests.references.test_dlrm_parts", "tests.references.test_dlrm_task"]
"""Where rank functions are, which import torch. Read once per session, when the first process is started."""


def start(rank: Callable[..., None], *arguments: object, ranks: int) -> None:
    """Run `rank(number, *arguments)` in as many processes, forked from one that has imported what takes long."""
    set_forkserver_preload(PRELOAD)
    start_processes(rank, arguments, nprocs=ranks, start_method="forkserver")


class FromFile(TorchParallel):
    """One rank on the CPU with one thread; the group meets in `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        rank: int,
        size: int,
        nodes: int = 1,
        precision: Precision = Precision.fp32,
        **options: object,
    ) -> None:
        torch.set_num_threads(1)
        self._meeting = f"file://{folder}/meet_{precision.value}"
        super().__init__(_job(precision, size, nodes, options), rank=rank, local_rank=rank, size=size)

    def _meet(self) -> None:
        if self.size > 1:
            distributed.init_process_group(
                "gloo", init_method=self._meeting, rank=self.rank, world_size=self.size
            )


def _job(precision: Precision, ranks: int, nodes: int, options: Mapping[str, object]) -> Job:
    """Little of it matters to `Parallel`."""
    return Job(
        benchmark="dlrm_mini",
        reference="dlrm",
        launcher="torchrun",
        launcher_config=options,
        index=0,
        seed=1,
        nodes=nodes,
        nproc_per_node=ranks // nodes,
        threads_per_rank=1,
        device=Device.cpu,
        precision=precision,
        drop_caches=False,
        start_limit_seconds=600.0,
        stall_limit_seconds=600.0,
        config={},
        announcement={},
        target=None,  # type: ignore[arg-type]
        unit=None,  # type: ignore[arg-type]
        schedule=(),
        folder=Path(),
    )
