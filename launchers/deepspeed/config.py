"""Options of `launcher=deepspeed`."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from train_bench.core import software
from train_bench.launcher import LauncherConfig
from train_bench.launchers.parts.elementwise import refuse_whole_tensors
from train_bench.launchers.torchrun.config import Config as TorchrunConfig
from train_bench.task import BenchmarkConfig

STAGES = (0, 1, 2, 3)


class Starter(str, Enum):
    """Process starter. DeepSpeed reaches other hosts by SSH, torchrun is started on each of them."""

    deepspeed = "deepspeed"
    torchrun = "torchrun"


@dataclass(slots=True, kw_only=True)
class Config(TorchrunConfig):
    """zero_stage   sharded state: 0 nothing, 1 optimizer state, 2 gradients as well, 3 weights as well
    starter      deepspeed or torchrun; the options of launcher=torchrun apply to the second alone
    hostfile     for several hosts with starter=deepspeed: lines `NAME slots=N`
    """

    name: str = "deepspeed"
    zero_stage: int = 0
    starter: Starter = Starter.deepspeed
    hostfile: str | None = None

    @property
    def divides(self) -> tuple[str, ...]:
        """Sharded state by stage; weights are updated in a copy."""
        kinds = ("optimizer", "gradients", "weights")[: self.zero_stage]
        return (*kinds, "copy") if kinds else ()

    @property
    def shardings(self) -> tuple[Mapping[str, Any], ...]:
        """The stages of ZeRO."""
        return tuple({"zero_stage": stage} for stage in STAGES)

    def whole_weights(self, benchmark: BenchmarkConfig) -> bool:
        """DeepSpeed divides what every rank has built, and gathers it for evaluations."""
        return LauncherConfig.whole_weights(self, benchmark)

    def refuse_installation(self) -> str | None:
        """DeepSpeed has to be installed, and pdsh where its own launcher reaches several hosts."""
        if importlib.util.find_spec("deepspeed") is None:
            step = software.install_command("deepspeed").replace("install", "install --no-build-isolation", 1)
            return (
                "launcher=deepspeed needs DeepSpeed, which is not installed; in a checkout `make deepspeed` does it, "
                f"elsewhere `{step}`."
            )
        if self.starter is Starter.deepspeed and self.nodes > 1 and shutil.which("pdsh") is None:
            return (
                f"DeepSpeed's launcher reaches {self.nodes} hosts with pdsh, which is not installed; install "
                "it, or use launcher.starter=torchrun."
            )
        return None

    def refuse_division(self, benchmark: BenchmarkConfig) -> str | None:
        """Refuse tables that ranks divide themselves, and optimizers that cannot update pieces of tensors."""
        if benchmark.SHARDED:
            return (
                f"launcher=deepspeed does not support the sharded tables of {benchmark.benchmark}; use "
                "launcher=torchrun or launcher=slurm."
            )
        if self.shard is not None:
            return (
                f"launcher.shard={self.shard.value} is for launcher=torchrun and slurm; DeepSpeed shards by "
                "launcher.zero_stage."
            )
        if self.tensor_parallel != 1:
            return f"launcher.tensor_parallel={self.tensor_parallel} is for launcher=torchrun and slurm; leave it out."
        if refused := self._refuse_unsharded():
            return refused
        if self.zero_stage not in STAGES:
            return f"launcher.zero_stage is {self.zero_stage}; it may be 0, 1, 2 or 3."
        if self.zero_stage == 0:
            return None
        option = f"launcher.zero_stage={self.zero_stage}"
        if self.zero_stage == 3 and benchmark.compile_mode:
            return f"{option} is not tested with benchmark.compile=true; leave one of them out."
        if self.zero_stage == 3 and getattr(benchmark.hyperparameters, "opt_name", None) == "adagrad":
            return f"{option} replaces Adagrad by a version with a fixed rate; use launcher.zero_stage=2."
        return refuse_whole_tensors(benchmark, option=option, instead="launcher.zero_stage=0")

    @property
    def cannot_continue(self) -> str | None:
        """From stage 1 on, the file of rank 0 holds only its piece of the optimizer's state."""
        if self.zero_stage == 0:
            return None
        return (
            f"launcher.zero_stage={self.zero_stage} cannot continue from a checkpoint, because every rank "
            "has a shard of the optimizer's state"
        )

    @property
    def joining(self) -> tuple[str, ...]:
        """DeepSpeed's launcher reaches the other hosts itself."""
        return super(Config, self).joining if self.starter is Starter.torchrun else ()
