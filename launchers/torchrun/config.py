"""Options of `launcher=torchrun`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from train_bench.launchers.parts.sharding import ShardingConfig


class Rendezvous(str, Enum):
    """Rendezvous of the agents of several hosts. `static`: each has a fixed node rank. `c10d`: they meet at host 0 and
    are numbered there."""

    static = "static"
    c10d = "c10d"


class NumaBinding(str, Enum):
    """CPUs of a rank, by their place beside its GPU."""

    node = "node"
    socket = "socket"
    exclusive = "exclusive"
    core_complex = "core-complex"


@dataclass(slots=True, kw_only=True)
class Config(ShardingConfig):
    """All fields but numa_binding are for `nodes` above 1.

    rendezvous   static or c10d
    master_addr  address of host 0 that the others can reach
    master_port  free port of host 0
    node_rank    number of this host; set by `train-bench join` alone
    interface    network interface of Gloo and NCCL on this host; null lets them choose
    local_addr   (c10d) address of this host that the others can reach; null is its name
    numa_binding  torchrun's --numa-binding: each rank keeps to CPUs near its GPU: node, socket, exclusive or
                  core-complex; null binds none
    """

    name: str = "torchrun"
    rendezvous: Rendezvous = Rendezvous.static
    master_addr: str | None = None
    master_port: int = 29500
    node_rank: int = 0
    interface: str | None = None
    local_addr: str | None = None
    numa_binding: NumaBinding | None = None

    RESTARTS: ClassVar[bool] = True

    @property
    def joining(self) -> tuple[str, ...]:
        """Overrides for every host but the first: its node rank."""
        return tuple(f"launcher.node_rank={rank}" for rank in range(1, self.nodes))
