"""Faults that make ranks of a launcher stop sharing what they learn. Planted in the process of every rank, after
which nothing else of a run tells that something is wrong; each is a context, behind which all is as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch

from train_bench.launchers.parts.ddp import TorchParallel


@contextmanager
def no_average(launcher: str) -> Iterator[None]:
    """Gradients stay those of the rank. Below ZeRO each rank still updates its piece of the weights and hands it to
    the others."""
    with ExitStack() as planted:
        for target, name, instead in _without_average(launcher):
            planted.enter_context(patch.object(target, name, instead))
        yield


@contextmanager
def no_gather() -> Iterator[None]:
    """Below ZeRO 1 and 2 each rank keeps its updated piece of the weights to itself."""
    from deepspeed.runtime.zero import stage_1_and_2

    with patch.object(stage_1_and_2, "all_gather_dp_groups", _nothing):
        yield


def _without_average(launcher: str) -> list[tuple[object, str, object]]:
    """What is to be replaced in which object by what."""
    if launcher == "horovod":
        import horovod.torch

        return [(horovod.torch, "DistributedOptimizer", _Alone)]
    if launcher == "deepspeed":
        from deepspeed.runtime.engine import DeepSpeedEngine
        from deepspeed.runtime.zero import stage3
        from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

        return [
            (DeepSpeedEngine, "buffered_allreduce_fallback", _nothing),
            (DeepSpeedZeroOptimizer, "average_tensor", _nothing),
            (stage3, "reduce_scatter_coalesced", _own_pieces),
        ]
    return [(TorchParallel, "forward", _never_the_last(TorchParallel.forward))]


def _nothing(*args, **kwargs):
    """In place of what ranks say to each other."""


def _own_pieces(tensors, group):
    """This rank's pieces of its own gradients, the last one filled up with zeros."""
    rank, ranks = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    pieces = []
    for tensor in tensors:
        size = -(-tensor.numel() // ranks)
        padded = torch.nn.functional.pad(tensor.flatten(), (0, ranks * size - tensor.numel()))
        pieces.append(padded[rank * size :][:size].clone())
    return pieces


def _never_the_last(proper):
    """As if every micro-batch had more to come, which is what `no_sync` says."""

    @contextmanager
    def forward(self, *, last_microbatch=True):
        with proper(self, last_microbatch=False):
            yield

    return forward


class _Alone(torch.optim.SGD):
    """In place of Horovod's optimizer."""

    def __init__(self, optimizer, **options):
        super().__init__(optimizer.param_groups, lr=0.0)

    def synchronize(self):
        """There is nothing to wait for."""
