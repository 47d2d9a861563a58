"""Options of `launcher=slurm`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, cast

from train_bench.launcher import LauncherConfig
from train_bench.launchers.parts.sharding import ShardingConfig
from train_bench.task import BenchmarkConfig


class Starter(str, Enum):
    """Starter of the ranks inside the allocation. `srun`: one task per rank. `torchrun`: srun starts one agent per
    node. `horovod`: horovodrun with the hosts of the allocation."""

    srun = "srun"
    torchrun = "torchrun"
    horovod = "horovod"


class ContainerRuntime(str, Enum):
    """What starts a rank in its image. `pyxis`: options of srun, on clusters with NVIDIA's plugin. `apptainer`: the
    program of that name on each node."""

    pyxis = "pyxis"
    apptainer = "apptainer"


@dataclass(slots=True, kw_only=True)
class Config(ShardingConfig):
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
    exclusive      --exclusive: whole nodes, of which nobody else has a part
    mem            --mem of each node; `0` is all of it
    exclude        --exclude: nodes that are left out, as Slurm spells them; may be given with `resume=`, after
                   launcher=slurm
    extra          further sbatch options of the script, one per line, for example `--constraint=a100`
    srun_extra     further srun options of the step that has the ranks, for example `--cpu-bind=cores`
    python         interpreter of the ranks on the nodes; default: the one that submits, in a container `python`
    prolog         command that every node carries out once before the first run of a job, off the clock
    epilog         command that every node carries out once after the last run of a job
    container_image    image that the ranks run in, as its runtime spells it
    container_runtime  pyxis or apptainer
    container_mounts   `HOST:CONTAINER` folders of a container; the campaign's is mounted in any case
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
    exclusive: bool = True
    mem: str | None = "0"
    exclude: str | None = None
    extra: list[str] = field(default_factory=list)
    srun_extra: list[str] = field(default_factory=list)
    python: str | None = None
    prolog: str | None = None
    epilog: str | None = None
    container_image: str | None = None
    container_runtime: ContainerRuntime = ContainerRuntime.pyxis
    container_mounts: list[str] = field(default_factory=list)

    RESTARTS: ClassVar[bool] = True
    ON_RESUME: ClassVar[tuple[str, ...]] = ("exclude",)

    @property
    def rank_cores(self) -> int | None:
        """As requested."""
        return self.cpus_per_rank

    @property
    def cannot_continue(self) -> str | None:
        """Horovod's ranks were not tried."""
        untried = "launcher.starter=horovod was not tried with starts from checkpoints"
        return untried if self.starter is Starter.horovod else None

    def refuse_installation(self) -> str | None:
        """What starts the ranks inside the allocation has to be installed; for the queue see `batch.py`."""
        return None if self.starter is Starter.srun else self.starter_config().refuse_installation()

    def refuse_division(self, benchmark: BenchmarkConfig) -> str | None:
        """Horovod's ranks have no process group of torch to shard over."""
        if self.starter is Starter.horovod:
            for name, value in (
                ("shard", getattr(self.shard, "value", None)),
                ("tensor_parallel", self.tensor_parallel),
            ):
                if value != getattr(type(self)(), name):
                    return (
                        f"launcher.{name}={value} is for launcher.starter=srun and torchrun; launcher.starter=horovod "
                        "was requested. Choose one of these, or leave it out."
                    )
        return super(Config, self).refuse_division(benchmark)

    def starter_config(self) -> LauncherConfig:
        """Configuration of what starts the ranks inside the allocation; its hosts are known on the nodes only."""
        config = importlib.import_module(f"train_bench.launchers.{self.starter.value}.config").Config
        return cast(LauncherConfig, config(nproc_per_node=self.nproc_per_node))
