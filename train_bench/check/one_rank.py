"""`Parallel` for one fp32 process on a CPU, which can claim to be one of several ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from train_bench.core.job import Precision

T = TypeVar("T")


class OneRank:
    """The whole group is this process. `rank` and `size` may be claimed to get the input of one of several ranks; sums
    and means are then those of this rank alone.

    model, optimizer  the wrapped ones
    steps_taken       optimizer steps since then
    """

    def __init__(self, *, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size, self.local_rank = rank, size, rank
        self.device = torch.device("cpu")
        self.steps_taken = 0

    @property
    def data_rank(self) -> int:
        """The rank itself."""
        return self.rank

    @property
    def data_ranks(self) -> int:
        """All ranks."""
        return self.size

    @property
    def channels_last(self) -> bool:
        """As fp32 prefers them on a CPU."""
        return Precision.fp32.prefers_channels_last(self.device.type)

    def batch_norm(self, model: torch.nn.Module, *, ranks: int) -> torch.nn.Module:
        """Unchanged."""
        return model

    def construct(self, make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        """Whole."""
        return make()

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
        """No other numerics."""
        yield

    @contextmanager
    def inference(self) -> Iterator[None]:
        """No gradients."""
        with torch.no_grad():
            yield

    def backward(self, loss: torch.Tensor) -> None:
        """No scaling."""
        loss.backward()

    def step(self, *, clip_norm: float | None = None) -> bool:
        """Always a step."""
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps_taken += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        """Number of steps."""
        return {"steps_taken": self.steps_taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the number of steps."""
        self.steps_taken = state["steps_taken"]

    def sync_buffers(self) -> None:
        """No other replicas."""

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Parameters and buffers, and the optimizer's tensors as `NAME/KEY`, but for `local_params`."""
        named = [
            (name, weight) for name, weight in self.model.named_parameters() if id(weight) not in self.local
        ]
        yield from (*named, *self.model.named_buffers())
        for name, weight in named:
            for key, value in self.optimizer.state.get(weight, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"{name}/{key}", value

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        """The value itself."""
        return value

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """The value itself."""
        return value

    def gather_objects(self, value: T) -> list[T] | None:
        """The value itself, on rank 0."""
        return [value] if self.rank == 0 else None

    def from_rank_zero(self, value: T) -> T:
        """The value itself."""
        return value

    def barrier(self) -> None:
        """No-op: one process."""

    def leave(self) -> None:
        """No-op."""
