"""A `Parallel` for tensors without memory: one rank of many, which says what it would exchange with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from train_bench.check.one_rank import OneRank
from train_bench.job import Precision

AUTOCAST = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.bfloat16}
"""Both formats take two bytes; for float16 CPUs have no LSTM kernel and would take thousands of small steps instead."""


class DryParallel(OneRank):
    """This process alone, in the job's numerics. `phase` is told where a step is: "forward", "backward", "update", or
    "between" these. What batch norm over ranks exchanges is small and left out.

    model, optimizer  what was wrapped
    local             parameters that ranks do not share, by id
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        device: torch.device,
        precision: Precision,
        phase: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        super().__init__(rank=rank, size=size)
        self.device, self.precision = device, precision
        self._phase = phase

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """Autocast."""
        with self._phase("forward"), self._autocast():
            yield

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Autocast without gradients."""
        with torch.no_grad(), self._autocast():
            yield

    def backward(self, loss: torch.Tensor) -> None:
        """Not scaled: a factor takes no memory."""
        with self._phase("backward"), torch.autograd.set_multithreading_enabled(False):
            loss.backward()

    def step(self, *, clip_norm: float | None = None) -> bool:
        """Clip, update, zero."""
        with self._phase("update"):
            return super().step(clip_norm=clip_norm)

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.precision)
        return nullcontext() if dtype is None else _cast(self.device.type, dtype)


@contextmanager
def _cast(device: str, dtype: torch.dtype) -> Iterator[None]:
    """torch's autocast, which is refused for a GPU that is not there."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])
