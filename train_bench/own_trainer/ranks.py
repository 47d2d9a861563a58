"""Ranks of a user's own trainer: their number, this process's rank, and broadcasts from rank 0. torch is used where the
program has imported it, and never imported."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from train_bench.errors import RequestError
from train_bench.run.rank_environment import rank_and_size

T = TypeVar("T")

Broadcast = Callable[[Any], Any]
"""Called by every rank with a value; gives every rank that of rank 0."""


class OwnRanks:
    """Rank and size of this process, given or detected: torch.distributed where the program has initialised it, else
    the variables of launchers, else a single rank. `broadcast` is the program's own broadcast."""

    def __init__(self, rank: int | None, world_size: int | None, broadcast: Broadcast | None) -> None:
        if (rank is None) != (world_size is None):
            raise RequestError("Benchmark() takes rank= and world_size= together, or neither of them.")
        self._told = None if rank is None or world_size is None else (rank, world_size)
        self._broadcast = broadcast

    @property
    def rank(self) -> int:
        """Counted from 0."""
        return self._found()[0]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._found()[1]

    def refuse(self) -> str | None:
        """Reason that the ranks cannot agree, as a sentence; None if they can."""
        if self.size == 1 or self._broadcast is not None or _distributed() is not None:
            return None
        return (
            f"This program runs as {self.size} ranks, and nothing is known by which rank 0 tells the others that the "
            f"target is reached. Begin torch.distributed before init_start(), or give Benchmark(broadcast=FUNCTION), "
            f"which gives every rank the value that rank 0 has called it with."
        )

    def from_rank_zero(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        if self.size == 1:
            return value
        if self._broadcast is not None:
            received: T = self._broadcast(value)
            return received
        from train_bench.core import rank_messages  # deferred, because it loads numpy

        sent: T = rank_messages.broadcast(value, self.rank, _exchange_device(), None)
        return sent

    def gather_objects(self, value: T) -> list[T] | None:
        """All ranks' values on rank 0, None elsewhere; without torch.distributed rank 0 has only its own."""
        distributed = _distributed()
        if self.size == 1 or distributed is None:
            return [value] if self.rank == 0 else None
        from train_bench.core import rank_messages

        return rank_messages.gather(value, self.size, self.rank, _exchange_device(), None)

    def describe(self) -> dict[str, Any] | None:
        """Number of ranks, and as far as they can be asked their hosts and devices; on rank 0, None elsewhere."""
        seen = self.gather_objects((platform.node(), _device()))
        if seen is None:
            return None
        if len(seen) < self.size:
            return {"ranks": self.size}
        hosts, devices = ({one[field] for one in seen} for field in (0, 1))
        return {"ranks": self.size, "hosts": len(hosts), "devices": sorted(devices)}

    def barrier(self) -> None:
        """Wait until every rank is here and its device is idle."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        if self.size > 1 and self._broadcast is None:
            _distributed().barrier()
        elif self.size > 1:
            self.from_rank_zero(None)

    def _found(self) -> tuple[int, int]:
        if self._told is not None:
            return self._told
        distributed = _distributed()
        if distributed is not None:
            return distributed.get_rank(), distributed.get_world_size()
        return rank_and_size(os.environ) or (0, 1)


def _device() -> str:
    """Kind of device that this process has used: `cuda` once it is initialised."""
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.is_initialized() else "cpu"


def _exchange_device() -> Any:
    """Device of the tensors that ranks exchange: NCCL takes those of GPUs alone."""
    torch = sys.modules["torch"]
    on_gpu = _distributed().get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def _distributed() -> Any:
    """torch.distributed, if this process has initialised it; else None."""
    distributed = sys.modules.get("torch.distributed")
    return (
        distributed
        if distributed is not None and distributed.is_available() and distributed.is_initialized()
        else None
    )
