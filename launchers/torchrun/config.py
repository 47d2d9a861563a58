"""What can be asked of `launcher=torchrun`."""

from __future__ import annotations

from dataclasses import dataclass

from train_bench.launcher import LauncherConfig


@dataclass(slots=True, kw_only=True)
class Config(LauncherConfig):
    """Nothing beyond what all launchers share."""

    name: str = "torchrun"
