"""A Parallel for one process in fp32, and one for several ranks that are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from train_bench.launchers._parts.ddp import whole_state


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
        self.local = {id(parameter) for parameter in local_params}
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

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        return whole_state(self.model, self.optimizer, self.local)

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


class Meeting:
    """Where ranks that are threads of this process bring what they have."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.brought: dict[int, Any] = {}

    def all(self, rank: int, value: Any) -> list[Any]:
        """What every rank brought, in order of rank."""
        self.brought[rank] = value
        self.barrier.wait()
        found = [self.brought[number] for number in sorted(self.brought)]
        self.barrier.wait()
        return found


class OneOfSeveral(OneRank):
    """A rank that adds up and gathers with the others; for evaluations, as gradients stay its own."""

    def __init__(self, meeting: Meeting, *, rank: int, size: int) -> None:
        super().__init__(rank=rank, size=size)
        self.meeting = meeting

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return torch.stack(self.meeting.all(self.rank, value)).sum(dim=0)

    def gather_objects(self, value: Any) -> list[Any] | None:
        found = self.meeting.all(self.rank, value)
        return found if self.rank == 0 else None

    def from_rank_zero(self, value: Any) -> Any:
        return self.meeting.all(self.rank, value)[0]


class Averaging(OneOfSeveral):
    """A rank that trains with the others: gradients are averaged."""

    def step(self, *, clip_norm: float | None = None) -> bool:
        for parameter in self.model.parameters():
            if parameter.grad is not None and id(parameter) not in self.local:
                parameter.grad = self.sum(parameter.grad) / self.size
        return super().step(clip_norm=clip_norm)


def in_threads(ranks: int, work: Callable[[Any], Any], kind: type[OneOfSeveral] = OneOfSeveral) -> list[Any]:
    """What `work` returns on each of several ranks of a kind that run at the same time."""
    meeting = Meeting(ranks)
    members = [kind(meeting, rank=rank, size=ranks) for rank in range(ranks)]
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(work, members))
