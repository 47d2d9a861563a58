"""What can be asked of `launcher=deepspeed`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from train_bench.launchers.torchrun.config import Config as TorchrunConfig


class Starter(str, Enum):
    """Who starts the ranks. DeepSpeed reaches other hosts by SSH, torchrun is started on each of them."""

    deepspeed = "deepspeed"
    torchrun = "torchrun"


@dataclass(slots=True, kw_only=True)
class Config(TorchrunConfig):
    """zero_stage   what is divided among ranks: 0 nothing, 1 optimizer state, 2 gradients as well
    starter      deepspeed or torchrun; the options of launcher=torchrun hold for the second alone
    hostfile     for several hosts with starter=deepspeed: lines `NAME slots=N`
    """

    name: str = "deepspeed"
    zero_stage: int = 0
    starter: Starter = Starter.deepspeed
    hostfile: str | None = None

    @property
    def divides(self) -> tuple[str, ...]:
        """By stage; weights are updated in a copy."""
        kinds = ("optimizer", "gradients", "weights")[: self.zero_stage]
        return (*kinds, "copy") if kinds else ()

    @property
    def joining(self) -> tuple[str, ...]:
        """DeepSpeed's launcher reaches the other hosts itself."""
        return super(Config, self).joining if self.starter is Starter.torchrun else ()
