"""A Parallel for one process in fp32, and one for several ranks simulated one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class OneRank:
    """The whole group is this process. `rank` and `size` may be claimed to see what one of several
    ranks would be given; sums and means are then those of this rank alone."""

    def __init__(self, *, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size, self.local_rank = rank, size, rank
        self.device = torch.device("cpu")
        self.steps_taken = 0

    def batch_norm(self, model: torch.nn.Module, *, ranks: int) -> torch.nn.Module:
        return model

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        self.optimizer = optimizer
        self.model = model
        return model

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        yield

    @contextmanager
    def inference(self) -> Iterator[None]:
        with torch.no_grad():
            yield

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def step(self, *, clip_norm: float | None = None) -> bool:
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps_taken += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"steps_taken": self.steps_taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps_taken = state["steps_taken"]

    def sync_buffers(self) -> None:
        pass

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def gather_objects(self, value: Any) -> list[Any] | None:
        return [value] if self.rank == 0 else None

    def from_rank_zero(self, value: Any) -> Any:
        return value

    def barrier(self) -> None:
        pass

    def leave(self) -> None:
        pass
