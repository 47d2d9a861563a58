"""Options of `launcher=torchrun`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from train_bench.launcher import LauncherConfig
from train_bench.launchers.parts.elementwise import refuse_whole_tensors
from train_bench.task import BenchmarkConfig


class Rendezvous(str, Enum):
    """Rendezvous of the agents of several hosts. `static`: each has a fixed node rank. `c10d`: they meet at host 0 and
    are numbered there."""

    static = "static"
    c10d = "c10d"


class Shard(str, Enum):
    """Sharding of weights, gradients and the optimizer's state: torch's FSDP2."""

    fsdp = "fsdp"


@dataclass(slots=True, kw_only=True)
class Config(LauncherConfig):
    """All fields but `shard`, `tensor_parallel` and those that all launchers share are for `nodes` above 1.

    shard        sharding of the training state among ranks; null replicates it
    tensor_parallel  size of a tensor-parallel group of neighbouring ranks, which compute the same samples
    rendezvous   static or c10d
    master_addr  address of host 0 that the others can reach
    master_port  free port of host 0
    node_rank    number of this host; set by `train-bench join` alone
    interface    network interface of Gloo and NCCL on this host; null lets them choose
    local_addr   (c10d) address of this host that the others can reach; null is its name
    """

    name: str = "torchrun"
    shard: Shard | None = None
    tensor_parallel: int = 1
    rendezvous: Rendezvous = Rendezvous.static
    master_addr: str | None = None
    master_port: int = 29500
    node_rank: int = 0
    interface: str | None = None
    local_addr: str | None = None

    RESTARTS: ClassVar[bool] = True

    @property
    def together(self) -> int:
        """Ranks per tensor-parallel group."""
        return self.tensor_parallel

    @property
    def divides(self) -> tuple[str, ...]:
        """All of it."""
        return () if self.shard is None else ("weights", "gradients", "optimizer")

    def refuse_division(self, benchmark: BenchmarkConfig) -> str | None:
        """Refuse optimizers and models that torch's sharding does not fit, and combinations that are not tested."""
        return self._refuse_shard(benchmark) or self._refuse_tensor_parallel(benchmark)

    def _refuse_shard(self, benchmark: BenchmarkConfig) -> str | None:
        if self.shard is None:
            return None
        option = f"launcher.shard={self.shard.value}"
        if benchmark.SHARDED:
            return (
                f"{option} does not support {benchmark.benchmark}, which shards its tables itself; leave "
                "it out."
            )
        if benchmark.compile:
            return f"{option} is not tested with benchmark.compile=true; leave one of them out."
        return refuse_whole_tensors(benchmark, option=option, instead="launcher=torchrun without it")

    def _refuse_tensor_parallel(self, benchmark: BenchmarkConfig) -> str | None:
        together = self.tensor_parallel
        option = f"launcher.tensor_parallel={together}"
        if together == 1:
            return None
        if together < 1 or self.world_size % together:
            return f"{option} does not divide {self.world_size} ranks; choose a divisor, or leave it out."
        if self.shard is not None:
            return f"{option} is not tested with launcher.shard={self.shard.value}; leave one of them out."
        if benchmark.compile:
            return f"{option} is not tested with benchmark.compile=true; leave one of them out."
        return benchmark.refuse_tensor_parallel(together) or refuse_whole_tensors(
            benchmark, option=option, instead="launcher=torchrun without it"
        )

    @property
    def joining(self) -> tuple[str, ...]:
        """Overrides for every host but the first: its node rank."""
        return tuple(f"launcher.node_rank={rank}" for rank in range(1, self.nodes))
