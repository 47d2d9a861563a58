"""Faults that make ranks of a launcher stop sharing what they learn. Planted in the process of every rank, after
which nothing else of a run tells that something is wrong."""

from __future__ import annotations

from contextlib import contextmanager

import torch

from train_bench.launchers.parts.ddp import TorchParallel


def no_average(launcher: str) -> None:
    """Gradients stay those of the rank. Below ZeRO 1 and 2 each rank still updates its piece of the weights and
    hands it to the others."""
    if launcher == "horovod":
        _horovod()
    elif launcher == "deepspeed":
        _deepspeed()
    else:
        _torch()


def no_gather() -> None:
    """Below ZeRO 1 and 2 each rank keeps its updated piece of the weights to itself."""
    from deepspeed.runtime.zero import stage_1_and_2

    stage_1_and_2.all_gather_dp_groups = lambda *args, **kwargs: None


def _torch() -> None:
    """As if every micro-batch had more to come, which is what `no_sync` says."""
    proper = TorchParallel.forward

    @contextmanager
    def forward(self, *, last_microbatch=True):
        with proper(self, last_microbatch=False):
            yield

    TorchParallel.forward = forward


class _Alone(torch.optim.SGD):
    """In place of Horovod's optimizer."""

    def __init__(self, optimizer, **options):
        super().__init__(optimizer.param_groups, lr=0.0)

    def synchronize(self):
        """There is nothing to wait for."""


def _horovod() -> None:
    import horovod.torch

    horovod.torch.DistributedOptimizer = _Alone


def _deepspeed() -> None:
    from deepspeed.runtime.engine import DeepSpeedEngine
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    DeepSpeedEngine.buffered_allreduce_fallback = lambda *args, **kwargs: None
    DeepSpeedZeroOptimizer.average_tensor = lambda *args, **kwargs: None
