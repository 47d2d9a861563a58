"""Options of `launcher=slurm`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from train_bench.launcher import LauncherConfig


class Starter(str, Enum):
    """Starter of the ranks inside the allocation. `srun`: one task per rank. `torchrun`: srun starts one agent per
    node. `horovod`: horovodrun with the hosts of the allocation."""

    srun = "srun"
    torchrun = "torchrun"
    horovod = "horovod"


@dataclass(slots=True, kw_only=True)
class Config(LauncherConfig):
    """Options of srun and sbatch; null leaves a choice to the cluster.

    starter        starter of the ranks inside the allocation
    wait           stay until the job has ended and show the score, instead of returning once it is submitted
    array          a job array with one task per run, instead of one job
    parallel       number of concurrent runs: in one job on `parallel` times `nodes` nodes, in an array as
                   many tasks
    partition      --partition
    account        --account
    time           --time of each job, as sbatch spells it: `90`, `1:30:00`, `2-12`
    gres           --gres of each node, for example `gpu:8`
    cpus_per_rank  CPUs of each rank; to be set if a rank needs more than one
    extra          further sbatch options of the script, one per line, for example `--constraint=a100`
    """

    name: str = "slurm"
    starter: Starter = Starter.srun
    wait: bool = False
    array: bool = False
    parallel: int = 1
    partition: str | None = None
    account: str | None = None
    time: str | None = None
    gres: str | None = None
    cpus_per_rank: int | None = None
    extra: list[str] = field(default_factory=list)

    def refuse_installation(self) -> str | None:
        """What starts the ranks inside the allocation has to be installed; for the queue see `batch.py`."""
        return None if self.starter is Starter.srun else self.starter_config().refuse_installation()

    def starter_config(self) -> LauncherConfig:
        """Configuration of what starts the ranks inside the allocation; its hosts are known on the nodes only."""
        config = importlib.import_module(f"train_bench.launchers.{self.starter.value}.config").Config
        return cast(LauncherConfig, config(nproc_per_node=self.nproc_per_node))
