"""Options of `launcher=inline`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from train_bench.launcher import LauncherConfig


@dataclass(slots=True, kw_only=True)
class Config(LauncherConfig):
    """Nothing beyond what all launchers share."""

    name: str = "inline"

    RESTARTS: ClassVar[bool] = True
