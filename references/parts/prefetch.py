"""Copies of training batches to a GPU on a stream of their own.

A batch is asked for when the steps before it are queued, and the GPU is still busy with them. On the stream of the
steps its copy would begin after them; on another one it takes place meanwhile. Not yet tried on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor


class Parts(list[Any]):
    """Parts of one batch in their order: tensors with a row for each sample, or tuples and lists of such."""


class Side(Protocol):
    """Stream beside that of the steps."""

    def copying(self) -> AbstractContextManager[Any]:
        """Context whose copies are queued on this stream."""

    def hand_over(self, tensors: list[Tensor]) -> None:
        """Let the steps wait for what was queued here, not the host, and use these tensors, which were made here."""


class CudaSide:
    """Side stream of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def copying(self) -> AbstractContextManager[Any]:
        """Torch's stream context. The host's memory is free for other batches once this stream has read it."""
        return torch.cuda.stream(self._stream)

    def hand_over(self, tensors: list[Tensor]) -> None:
        """Their memory is free for other batches once the steps have done with it."""
        steps = torch.cuda.current_stream(self._device)
        steps.wait_stream(self._stream)
        for tensor in tensors:
            tensor.record_stream(steps)


def side_of(device: torch.device) -> Side | None:
    """Side stream of a GPU; None for other devices, where a copy is none or takes the place of a step."""
    return CudaSide(device) if device.type == "cuda" else None


def idle_of(device: torch.device) -> Callable[[], bool]:
    """Whether a device has done all that is queued for it; asking takes a microsecond and waits for nothing. A CPU is
    always done."""
    if device.type != "cuda":
        return lambda: True
    return lambda: torch.cuda.current_stream(device).query()


def prefetched(
    made: Iterable[tuple[Any, Any]], device: torch.device, side: Side
) -> Iterator[tuple[Any, Any]]:
    """Pairs of items and their batch, with its tensors on `device`, where parts are joined. The next pair is taken when
    it is asked for."""
    for items, batch in made:
        tensors: list[Tensor] = []
        with side.copying():
            if isinstance(batch, Parts):
                batch = join(Parts(_copied(part, device, []) for part in batch))
            there = _copied(batch, device, tensors)
        side.hand_over(tensors)
        yield items, there


def join(batch: Any) -> Any:
    """The batch of these parts, on their device, in pinned memory if they are; any other batch as it is."""
    if not isinstance(batch, Parts):
        return batch
    first = batch[0]
    if len(batch) == 1:
        return first
    if isinstance(first, Tensor):
        whole = torch.cat(batch)
        return whole.pin_memory() if first.is_pinned() else whole
    return type(first)(join(Parts(each)) for each in zip(*batch, strict=True))


def _copied(part: Any, device: torch.device, copies: list[Tensor]) -> Any:
    """Tensors in tuples and lists are copied; all else stays with the host, and what is made by a benchmark's own class
    moves in its step."""
    if isinstance(part, Tensor):
        copies.append(part.to(device, non_blocking=True))
        return copies[-1]
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*(_copied(each, device, copies) for each in part))
    if type(part) in (tuple, list):
        return type(part)(_copied(each, device, copies) for each in part)
    return part
