"""Options of `launcher=horovod`."""

from __future__ import annotations

import importlib.util
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

    def refuse_installation(self) -> str | None:
        """Horovod has to be installed."""
        if importlib.util.find_spec("horovod") is not None:
            return None
        return (
            "launcher=horovod needs Horovod, which is not installed; `make horovod` builds it in a checkout, "
            "`python -m train_bench.launchers.horovod.build` elsewhere."
        )
