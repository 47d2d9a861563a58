"""Options of `launcher=horovod`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from train_bench.launcher import LauncherConfig


class Controller(str, Enum):
    """Controller of Horovod's processes; `mpi` needs a build with MPI."""

    gloo = "gloo"
    mpi = "mpi"


@dataclass(slots=True, kw_only=True)
class Config(LauncherConfig):
    """hosts       names of `nodes` hosts that answer SSH without a password; none: this one
    controller  gloo or mpi
    """

    name: str = "horovod"
    hosts: list[str] = field(default_factory=list)
    controller: Controller = Controller.gloo
