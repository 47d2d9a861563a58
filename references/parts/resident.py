"""Small data sets on a GPU: read once when they are opened, on the clock, and batches are rows of them.

For sets whose samples depend on their numbers alone, and whose batches are tensors with a row for each sample. The rows
are those that the set makes, so that batches are equal bit by bit to those of loader processes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST = 1 << 30
"""Bytes of a set above which it stays with the host."""


class Resident:
    """Batches of a set, of which `whole` is the batch of all its rows, on the device of these."""

    def __init__(
        self,
        whole: Any,
        rows: int,
        sampler: Iterable[Any],
        numbers: Callable[[Any], np.ndarray],
        device: torch.device,
    ) -> None:
        self._whole = _mapped(whole, lambda tensor: tensor.to(device))
        self._last, self._sampler, self._numbers, self._device = rows - 1, sampler, numbers, device

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        torch.empty((), dtype=torch.int64).random_()  # from torch's generator as by each pass of a DataLoader
        return self._made(iter(self._sampler))

    def _made(self, listed: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        for items in listed:
            numbers = torch.from_numpy(np.minimum(self._numbers(items), self._last))
            if self._device.type == "cuda":
                numbers = numbers.pin_memory()
            rows = numbers.to(self._device, non_blocking=True)
            yield items, _mapped(self._whole, functools.partial(torch.index_select, dim=0, index=rows))


def size_of(sample: Any, workers: int | None, *sets: tuple[int | None, int]) -> int:
    """Bytes that a device holds of sets whose rows are each as `sample`, a batch of one: of the small ones, unless a
    number of loader processes is configured. `sets` are numbers of samples, None if unknown, and of rows of padding."""
    size = _bytes_of(sample)
    rows = [samples + padding for samples, padding in sets if samples is not None]
    return sum(size * count for count in rows if size * count <= LARGEST) if workers is None else 0


def holds_sets(device: torch.device) -> bool:
    """True for devices that samples would have to be copied to in each step."""
    return device.type == "cuda"


def held(
    samples: Any,
    rows: int,
    items: Callable[[int], Sequence[Any]],
    sampler: Iterable[Any],
    numbers: Callable[[Any], np.ndarray],
    device: torch.device,
) -> Resident | None:
    """Batches of the items of `sampler` from all `rows` of a set, the last of which fills batches where numbers beyond
    it do; None if the set is too large. `items(n)` are the items of the first n rows."""
    if rows * _bytes_of(samples[items(1)]) > LARGEST:
        return None
    return Resident(samples[items(rows)], rows, sampler, numbers, device)


def _bytes_of(batch: Any) -> int:
    sizes: list[int] = []
    _mapped(batch, lambda tensor: sizes.append(tensor.nbytes))
    return sum(sizes)


def _mapped(batch: Any, function: Callable[[Tensor], Any]) -> Any:
    """The batch with `function` of each of its tensors: itself, or in tuples and lists."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_mapped(part, function) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(_mapped(part, function) for part in batch)
    return batch
