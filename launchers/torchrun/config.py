"""What can be asked of `launcher=torchrun`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from train_bench.launcher import LauncherConfig


class Rendezvous(str, Enum):
    """How the agents of several hosts find each other. `static`: each knows its number among them.
    `c10d`: they meet at host 0 and are numbered there."""

    static = "static"
    c10d = "c10d"


class Shard(str, Enum):
    """What divides weights, gradients and the optimizer's state among ranks: torch's FSDP2."""

    fsdp = "fsdp"


@dataclass(slots=True, kw_only=True)
class Config(LauncherConfig):
    """All fields but `shard`, `tensor_parallel` and those that all launchers share are for `nodes` above 1.

    shard        what divides the training state among ranks; null leaves all of it on each
    tensor_parallel  among how many neighbouring ranks matrices are divided, which compute the same samples together
    rendezvous   how the hosts find each other
    master_addr  address of host 0 that the others can reach
    master_port  free port of host 0
    node_rank    which host this is; said by `train-bench join` alone
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
        """Those that matrices are divided among."""
        return self.tensor_parallel

    @property
    def divides(self) -> tuple[str, ...]:
        """All of it."""
        return () if self.shard is None else ("weights", "gradients", "optimizer")

    @property
    def joining(self) -> tuple[str, ...]:
        """Every host but the first says its number."""
        return tuple(f"launcher.node_rank={rank}" for rank in range(1, self.nodes))
