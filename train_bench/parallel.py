"""CONTRACT 3: interface of a rank's communication.

DDP, Horovod and DeepSpeed differ in exactly these methods; a reference calls them and does not know
which of the three answers. Numerics (autocast, loss scaling) are carried here too, so that no
reference asks for the precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class Stepped(Protocol):
    """Result of a step: True, or False if it was skipped for an overflow. Whoever asks for its truth may wait until the
    device has come so far."""

    def __bool__(self) -> bool: ...


class Parallel(Protocol):
    """One rank's view of all ranks."""

    rank: int
    size: int
    local_rank: int
    device: torch.device

    @property
    def data_rank(self) -> int:
        """Data-parallel rank: the part of every batch that this rank trains and evaluates on, of `data_ranks`. That is
        its own part, unless ranks compute the same samples together (tensor parallelism); these add the same to sums
        and means."""

    @property
    def data_ranks(self) -> int:
        """Number of data-parallel ranks: the parts of a batch."""

    @property
    def channels_last(self) -> bool:
        """True if convolutions of the job's numerics on this device are faster on images in `channels_last` than on
        contiguous ones."""

    def batch_norm(self, model: torch.nn.Module, *, ranks: int) -> torch.nn.Module:
        """Let batch-norm layers take their statistics over groups of `ranks` neighbouring ranks;
        called before `wrap`. One rank needs no communication and changes nothing."""

    def construct(self, make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        """The network that `make` constructs, on this rank's device. Where ranks shard it, none has it whole: `make`
        is called on meta tensors, and what it fills whole tensors with (normal and uniform draws, constants) is drawn
        a tensor at a time, the same weights for any number of ranks whose generators were seeded alike. It has to be
        evaluated by equally many forward passes on every rank. Called before the optimizer is made."""

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        """Make all ranks start from rank 0's weights and average gradients from now on. Returns the
        module whose forward is to be called. `local_params` (sharded tables) are neither
        broadcast nor reduced. Called once, before the first `forward`; the optimizer is stepped by
        `step` alone. The learning rate may be changed in the optimizer's `param_groups` at any
        time."""

    def forward(self, *, last_microbatch: bool = True) -> AbstractContextManager[None]:
        """Context of a training forward pass and its `backward`: the job's numerics, and no gradient
        reduction before the last micro-batch of an accumulation."""

    def inference(self) -> AbstractContextManager[None]:
        """Context of an evaluation forward pass: the job's numerics, no gradients."""

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of `loss`, the mean over this rank's micro-batch divided by the number of
        micro-batches; after the last one they are the mean over the global batch. Call it inside
        `forward`."""

    def step(self, *, clip_norm: float | None = None) -> Stepped:
        """Synchronise, unscale, clip by global norm, update, zero the gradients, in this order. False
        if a scaled step was skipped for an overflow, so that schedules and moving averages do not
        advance; best asked for once the next step's gradients are under way."""

    def state_dict(self) -> dict[str, Any]:
        """State that `wrap` added to the training state (the loss scale)."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""

    def sync_buffers(self) -> None:
        """Average the floating-point buffers of the wrapped model (batch-norm statistics) over ranks;
        called before an evaluation."""

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        """State that every rank holds as rank 0 does after an evaluation, bit by bit, by its name: parameters and
        buffers of the wrapped model but for `local_params`, and the optimizer's state of these where each rank has all
        of it. Called by all ranks, after training."""

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        """Sum over ranks, on every rank. Of N ranks that compute the same samples together each adds the same, so
        that a sum over samples is N times what it is; a mean, or a ratio of two sums, is right."""

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Mean over ranks, on every rank."""

    def gather_objects(self, value: T) -> list[T] | None:
        """All ranks' values in rank order on rank 0, None elsewhere."""

    def from_rank_zero(self, value: T) -> T:
        """Rank 0's value, on every rank."""

    def barrier(self) -> None:
        """Wait until every rank is here and its device is idle."""

    def leave(self) -> None:
        """End the group."""
