"""Data loader processes, and the record of the samples taken from them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from train_bench.core import cores, signals
from train_bench.references.parts import resident
from train_bench.references.parts.fingerprint import Stored, fingerprint
from train_bench.references.parts.prefetch import Parts, Side, idle_of, join, prefetched
from train_bench.task import ORDER_KEPT, DataFingerprint, SamplesTaken

LEAST_IN_PART = 8
"""Samples of a batch below which a process does not share it: handing over a part takes as long as some of them."""

LARGE_IMAGE = 128
"""Side in pixels from which decoding and cropping of images takes so long that batches are made in parts."""


class LoaderConfig(Protocol):
    """Loader configuration: processes per rank, and prefetched batches per process."""

    workers: int | None
    prefetch: int


class Samples(Protocol):
    """A set of samples as training or evaluation reads them: augmented, decoded, collated."""

    def __getitem__(self, item: Any) -> Any:
        """The sample of a sampler item."""

    @property
    def stored(self) -> Stored:
        """The stored samples that `__getitem__` reads."""


class Record:
    """Record of the samples taken from a source of batches, in each pass over it."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.numbers: list[np.ndarray] = []
        """Sample numbers of the latest pass; of a long one the beginning."""

    def of(self, batches: Iterator[tuple[np.ndarray, Any]]) -> Iterator[Any]:
        """Another pass: every batch, noted when it is taken. `batches` come with the numbers of their samples."""
        self.counts.append(0)
        self.numbers = []
        return self._noted(batches)

    def _noted(self, batches: Iterator[tuple[np.ndarray, Any]]) -> Iterator[Any]:
        for numbers, batch in batches:
            if self.counts[-1] < ORDER_KEPT:
                self.numbers.append(numbers)
            self.counts[-1] += len(numbers)
            yield batch

    def beginning(self, ranks: int) -> list[np.ndarray]:
        """Sample numbers of the latest pass, one batch each, up to one rank's share of the record."""
        ends = np.cumsum([0, *map(len, self.numbers)])
        return self.numbers[: int((ends[:-1] < max(1, ORDER_KEPT // ranks)).sum())]


def numbers_of(items: Sequence[int | tuple[int, int]]) -> np.ndarray:
    """int64: the items themselves, or the first part of each, which is an index before a position."""
    return np.array([item if isinstance(item, int) else item[0] for item in items], dtype=np.int64)


class Loader:
    """Batches of `samples`, an endless pass over them for training or one pass per evaluation, and the record of
    what was taken. Each batch comes with the items that it was made of, from whichever process has made it.

    waited  seconds until a batch was there, of all those that came to an `idle` device: while it works through queued
            steps, nothing is lost
    """

    def __init__(
        self,
        samples: Samples,
        sampler: Iterable[Any],
        loading: Iterable[tuple[Any, Any]],
        *,
        numbers: Callable[[Any], np.ndarray],
        padding_from: int | None,
        idle: Callable[[], bool] = lambda: True,
    ) -> None:
        self.samples, self.sampler, self.loading = samples, sampler, loading
        self.record = Record()
        self.waited = 0.0
        self._numbers, self._padding_from, self._idle = numbers, padding_from, idle

    def __iter__(self) -> Iterator[Any]:
        return self.copied_by(None, torch.device("cpu"))

    def copied_by(self, side: Side | None, device: torch.device) -> Iterator[Any]:
        """A pass whose batches come on `device`, copied by a stream of their own; without one they stay where they are.
        A batch counts as taken when it is given."""
        made = self._made()
        there = made if side is None else prefetched(made, device, side)
        return self.record.of(self._numbered(items, join(parts)) for items, parts in there)

    def _made(self) -> Iterator[tuple[Any, Any]]:
        """Another pass, whose processes begin at once."""
        began = time.perf_counter()
        made = iter(self.loading)
        return self._awaited(made, time.perf_counter() - began)

    def _awaited(self, made: Iterator[tuple[Any, Any]], start: float) -> Iterator[tuple[Any, Any]]:
        """`start` are the seconds that the beginning took."""
        while True:
            began = time.perf_counter()
            try:
                batch = next(made)
            except StopIteration:
                return
            if self._idle():
                self.waited += start + time.perf_counter() - began
            start = 0.0
            yield batch

    def _numbered(self, items: Any, batch: Any) -> tuple[np.ndarray, Any]:
        numbers = self._numbers(items)
        if self._padding_from is not None:
            numbers = numbers[numbers < self._padding_from]
        return numbers, batch


def loader(
    samples: Samples,
    config: LoaderConfig,
    device: torch.device,
    sampler: Iterable[Any],
    *,
    collate: Callable[[list[Any]], Any] | None = default_collate,
    numbers: Callable[[Any], np.ndarray] = numbers_of,
    padding_from: int | None = None,
    in_parts: bool = False,
    rows: int = 0,
    items: Callable[[int], list[Any]] = lambda rows: list(range(rows)),
) -> Loader:
    """Batches of `samples`, one for each list of items in `sampler`, from as many processes as configured, and as suit
    the cores of the rank (`core/cores.py`) if that is None.

    Training and evaluation have so many each, which take turns: those of training rest while it evaluates, with the
    next batches ready, and the others while it trains. Parts that sum to the cores would leave cores idle all the time.

    collate       makes a batch of the samples of all items; None: `samples` makes it of the list
    numbers       the numbers of the samples that a list of items stands for
    padding_from  numbers from this one on fill batches and are no samples
    in_parts      all processes make a part of each batch: the first batch, and those of an evaluation, do not wait
                  for one of them; `collate` gives tensors with a row for each sample. Parts come by shared memory: that
                  does not pay for samples of microseconds
    rows          rows of a set whose samples depend on their numbers alone, with one of padding if there is any: a GPU
                  holds all of a small set, unless a number of processes is configured; `items` of the first n rows
    """
    if rows and config.workers is None and resident.holds_sets(device):
        held = resident.held(samples, rows, items, sampler, numbers, device)
        if held is not None:
            return Loader(
                samples, sampler, held, numbers=numbers, padding_from=padding_from, idle=idle_of(device)
            )
    workers = cores.loader_processes(config.workers, device.type, cores.rank_cores())
    batches = _WithItems(samples, collate)
    if workers == 0 and device.type == "cpu":
        return Loader(samples, sampler, _Here(batches, sampler), numbers=numbers, padding_from=padding_from)
    in_parts = in_parts and workers > 1
    loading: Any = DataLoader(
        _PartsWithItems(samples, collate) if in_parts else batches,
        batch_size=None,
        sampler=_InParts(sampler, workers) if in_parts else sampler,
        collate_fn=_unchanged,
        num_workers=workers,
        prefetch_factor=config.prefetch if workers else None,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
        worker_init_fn=_outlive_warnings,
    )
    if in_parts:
        loading = _Gathered(loading)
    idle = idle_of(device)
    return Loader(samples, sampler, loading, numbers=numbers, padding_from=padding_from, idle=idle)


class _WithItems(Dataset):
    """Batches with their lists of items."""

    def __init__(self, samples: Samples, collate: Callable[[list[Any]], Any] | None) -> None:
        self._samples, self._collate = samples, collate

    def __getitem__(self, items: list[Any]) -> tuple[list[Any], Any]:
        if self._collate is None:
            return items, self._samples[items]
        return items, self._collate([self._samples[item] for item in items])


class _InParts:
    """Lists of items of a sampler, cut into one part for each process; True with the last part of a list."""

    def __init__(self, sampler: Iterable[list[Any]], processes: int) -> None:
        self._sampler, self._processes = sampler, processes

    def __iter__(self) -> Iterator[tuple[list[Any], bool]]:
        for items in self._sampler:
            count = max(1, min(self._processes, len(items) // LEAST_IN_PART))
            ends = [len(items) * number // count for number in range(count + 1)]
            for number in range(count):
                yield items[ends[number] : ends[number + 1]], number == count - 1


class _PartsWithItems(_WithItems):
    """Parts of batches with their lists of items, and True with the last part of a batch."""

    def __getitem__(self, part: Any) -> tuple[Any, Any]:
        return part, super().__getitem__(part[0])[1]


class _Gathered:
    """Batches that come in parts, which come in order: all items, and the parts."""

    def __init__(self, loading: Iterable[tuple[Any, Any]]) -> None:
        self.loading = loading

    def __iter__(self) -> Iterator[tuple[list[Any], Parts]]:
        return self._gather(iter(self.loading))

    def _gather(self, made: Iterator[tuple[Any, Any]]) -> Iterator[tuple[list[Any], Parts]]:
        items: list[Any] = []
        parts = Parts()
        for (mine, is_last), part in made:
            items += mine
            parts.append(part)
            if is_last:
                yield items, parts
                items, parts = [], Parts()


class _Here:
    """Batches made in this thread when they are asked for. What a DataLoader without processes does besides takes as
    long as a small batch."""

    def __init__(self, batches: _WithItems, sampler: Iterable[Any]) -> None:
        self._batches, self._sampler = batches, sampler

    def __iter__(self) -> Iterator[tuple[list[Any], Any]]:
        torch.empty((), dtype=torch.int64).random_()  # from torch's generator as by each pass of a DataLoader
        return map(self._batches.__getitem__, iter(self._sampler))


def _outlive_warnings(_worker: int) -> None:
    """A warning of the end of a run may reach all processes of a host: the rank leaves, and its loaders with it."""
    for number in signals.ENDING:
        signal.signal(number, signal.SIG_IGN)


def _unchanged(made: Any) -> Any:
    return made


def fingerprint_of(train: Loader, evaluation: Loader, *, eval_left_out: int = 0) -> DataFingerprint:
    """The fingerprint of the sets that two loaders read."""
    return fingerprint(train.samples.stored, evaluation.samples.stored, eval_left_out=eval_left_out)


def samples_taken(train: Loader, evaluation: Loader) -> SamplesTaken:
    """Samples that a rank took from its loaders."""
    sampler: Any = train.sampler
    return SamplesTaken(
        trained=sum(train.record.counts),
        order=train.record.beginning(sampler.ranks),
        start=sampler.first_iteration * sampler.global_batch_size,
        epoch=sampler.order.epoch,
        carried=sampler.order.carried,
        evaluated=evaluation.record.counts,
        evaluation=evaluation.record.beginning(sampler.ranks),
        waited=train.waited + evaluation.waited,
    )
