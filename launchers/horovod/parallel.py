"""Rank side of `launcher=horovod`: gradients averaged by Horovod over Gloo, MPI or NCCL."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TypeVar

import horovod.torch as hvd
import torch

from train_bench.core import rank_messages
from train_bench.core.job import Job
from train_bench.errors import LaunchError
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.parallel import Stepped

T = TypeVar("T")


def join(job: Job) -> HorovodParallel:
    """Join the ranks that horovodrun started."""
    hvd.init()
    return HorovodParallel(job)


def _as_tensor(message: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(message), dtype=torch.uint8)


class _DenseView:
    """Horovod compressor: a view of the same memory with its dimensions in the order of their strides. Horovod takes
    contiguous tensors only, and channels-last ones are not."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        return tensor.permute(order), order

    @staticmethod
    def decompress(tensor: torch.Tensor, order: list[int]) -> torch.Tensor:
        return tensor.permute(sorted(range(len(order)), key=order.__getitem__))


class HorovodParallel(TorchParallel):
    """One rank of Horovod. Numerics and the step are torch's; collectives are Horovod's."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, rank=hvd.rank(), local_rank=hvd.local_rank(), size=hvd.size())
        if self.device.type == "cuda" and self.size > 1 and not hvd.nccl_built():
            raise LaunchError(
                "This build of Horovod has no NCCL, which GPUs need; use device=cpu, or build it with "
                "`python -m train_bench.launchers.horovod.build --nccl`."
            )

    def _meet(self) -> None:
        """No-op: `hvd.init` has formed the group."""

    def batch_norm(self, model: torch.nn.Module, *, ranks: int) -> torch.nn.Module:
        """Every rank for itself: Horovod has no groups of neighbours."""
        if ranks == 1:
            return model
        raise LaunchError(
            f"launcher=horovod does not support batch-norm statistics over {ranks} ranks; set "
            "model_bn_span to the batch size of one rank, or use launcher=torchrun on GPUs."
        )

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        """Horovod's optimizer averages the gradients, the reference's own makes the update.

        A Horovod optimizer copies the one that it is given, so that learning rates and state that are put
        back in the reference's would no longer reach it. It is given one that is never stepped.
        """
        self._model = self._wrapped = model
        self._optimizer = optimizer
        self._local = {id(parameter) for parameter in local_params}
        named = [(name, weight) for name, weight in model.named_parameters() if id(weight) not in self._local]
        shared = [*named, *model.named_buffers()]
        hvd.broadcast_parameters(
            [(name, _DenseView.compress(tensor.detach())[0]) for name, tensor in shared], root_rank=0
        )
        self._averager = hvd.DistributedOptimizer(
            torch.optim.SGD([weight for _, weight in named], lr=0.0),
            named_parameters=named,
            compression=_DenseView,
            backward_passes_per_step=gradient_accumulation_steps,
        )
        return model

    def step(self, *, clip_norm: float | None = None) -> Stepped:
        """Wait for the averages first."""
        self._averager.synchronize()
        return super().step(clip_norm=clip_norm)

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        """All-reduce of a copy."""
        total: torch.Tensor = hvd.allreduce(value.detach().to(self.device).contiguous(), op=hvd.Sum)
        return total

    def gather_objects(self, value: T) -> list[T] | None:
        """Gathered everywhere, kept on rank 0."""
        mine = _as_tensor(rank_messages.encode(value, self._token))
        lengths = hvd.allgather(torch.tensor([mine.numel()])).tolist()
        every = bytes(hvd.allgather(mine).numpy())
        if self.rank != 0:
            return None
        ends = list(itertools.accumulate(lengths))
        return [
            rank_messages.decode(every[end - length : end], self._token, f"rank {number}")
            for number, (end, length) in enumerate(zip(ends, lengths, strict=True))
        ]

    def from_rank_zero(self, value: T) -> T:
        """Broadcast."""
        message = rank_messages.encode(value, self._token) if self.rank == 0 else b""
        length = int(hvd.broadcast(torch.tensor([len(message)]), root_rank=0))
        content = _as_tensor(message) if self.rank == 0 else torch.empty(length, dtype=torch.uint8)
        sent = bytes(hvd.broadcast(content, root_rank=0).numpy())
        received: T = rank_messages.decode(sent, self._token, "rank 0")
        return received

    def barrier(self) -> None:
        """Device first, then the other ranks."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        hvd.barrier()

    def leave(self) -> None:
        """End Horovod."""
        hvd.shutdown()
