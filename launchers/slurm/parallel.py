"""Rank side of `launcher=slurm`: srun's tasks, or the ranks of the inner launcher."""

from __future__ import annotations

import importlib
import os
from typing import cast

from train_bench.core import cores
from train_bench.core.job import Job
from train_bench.errors import LaunchError
from train_bench.launchers.parts.torch_ranks import parallel_of
from train_bench.launchers.slurm.config import Starter
from train_bench.launchers.slurm.rendezvous import rendezvous
from train_bench.launchers.slurm.start import STARTER
from train_bench.parallel import Parallel


def join(job: Job) -> Parallel:
    """Take the rank from srun and join the process group; other starters assign ranks themselves."""
    starter = Starter(os.environ[STARTER])
    if starter is not Starter.srun:
        inner = importlib.import_module(f"train_bench.launchers.{starter.value}.parallel")
        return cast(Parallel, inner.join(job))
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    if size != job.world_size:
        # Checked before the group is opened, which would wait for ranks that do not exist.
        raise LaunchError(f"{job.world_size} ranks were requested, but srun started {size}.")
    if given := os.environ.get("SLURM_CPUS_PER_TASK"):
        cores.limit_task(int(given))  # also where tasks are not bound
    if size > 1:
        host, port = rendezvous(job, first=rank == 0)
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port))
    return parallel_of(job)(job, rank=rank, local_rank=int(os.environ["SLURM_LOCALID"]), size=size)
