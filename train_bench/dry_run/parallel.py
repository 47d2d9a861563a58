"""A `Parallel` for tensors without memory: one rank of many, which says what it would exchange with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch

from train_bench.job import Precision

T = TypeVar("T")

AUTOCAST = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.bfloat16}
"""Both formats take two bytes; for float16 CPUs have no LSTM kernel and would take thousands of small steps instead."""


class DryParallel:
    """This process alone, in the job's numerics. `phase` is told where a step is: "forward", "backward", "update", or
    "between" these.

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
        self.rank, self.size, self.local_rank = rank, size, 0
        self.device, self.precision = device, precision
        self._phase = phase

    def batch_norm(self, model: torch.nn.Module, *, ranks: int) -> torch.nn.Module:
        """Unchanged: what statistics over ranks exchange is small and left out."""
        return model

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        """The model itself."""
        self.model, self.optimizer = model, optimizer
        self.local = {id(parameter) for parameter in local_params}
        return model

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
            if clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return True

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""

    def sync_buffers(self) -> None:
        """Nothing."""

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Nothing: no rank holds a value."""
        return iter(())

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        """Its own."""
        return value

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Its own."""
        return value

    def gather_objects(self, value: T) -> list[T] | None:
        """Its own, on rank 0."""
        return [value] if self.rank == 0 else None

    def from_rank_zero(self, value: T) -> T:
        """Its own."""
        return value

    def barrier(self) -> None:
        """Nobody to wait for."""

    def leave(self) -> None:
        """Nothing to end."""

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
