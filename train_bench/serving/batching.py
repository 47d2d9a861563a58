"""Batches of waiting samples: the queue between LoadGen and a system that answers."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from train_bench.errors import LaunchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Policy: a batch has at most `max_batch_size` samples, and waits up to `window_ms` for more of them. With a
    window of 0 it has those that are waiting."""

    window_ms: float = 0.0
    max_batch_size: int = 32


@dataclass(eq=False)
class Batcher(ABC):
    """Answers samples in batches, between `start` and `close`.

    `answer` gets indices and returns as many answers, `complete` gets the ids with them. When either fails, whatever it
    raises, `failure` has the error, and all further samples get empty answers, so that the test comes to its end.
    `processor_seconds` are those of the thread in `answer`, for `answered` samples.
    """

    batching: Batching
    answer: Callable[[Sequence[int]], Sequence[bytes]]
    complete: Callable[[Sequence[int], Sequence[bytes]], None]
    failure: BaseException | None = field(default=None, init=False)
    answered: int = field(default=0, init=False)
    processor_seconds: float = field(default=0.0, init=False)

    def start(self) -> None:  # noqa: B027
        """Start answering."""

    @abstractmethod
    def issue(self, samples: Sequence[Any]) -> None:
        """Take samples, which have an `id` and an `index`."""

    def close(self) -> None:  # noqa: B027
        """Answer the waiting samples, then end."""

    def fail(self, error: BaseException) -> None:
        """Give empty answers from now on."""
        self.failure = self.failure or error

    def _give(self, batch: Sequence[Any]) -> None:
        ids = [sample.id for sample in batch]
        answers: Sequence[bytes] = [b""] * len(batch)
        if self.failure is None:
            start = time.thread_time()
            try:
                answers = self.answer([sample.index for sample in batch])
                _refuse_other_answers(answers, len(batch))
            except BaseException as error:
                self.fail(error)
                answers = [b""] * len(batch)
            self.processor_seconds += time.thread_time() - start
            self.answered += len(batch)
        try:
            self.complete(ids, answers)
        except BaseException as error:
            self.fail(error)
            self.complete(ids, [b""] * len(batch))


class InlineBatcher(Batcher):
    """Batcher that answers samples where they are issued, for queries that come one after the other: it spares two
    changes of threads a query."""

    def issue(self, samples: Sequence[Any]) -> None:
        size = self.batching.max_batch_size
        for first in range(0, len(samples), size):
            self._give(samples[first : first + size])


@dataclass(eq=False)
class QueueBatcher(Batcher):
    """Batcher with a thread of its own. `issue` only queues samples, because the latency of a sample counts from when
    it was scheduled."""

    _issued: queue.SimpleQueue[Sequence[Any] | None] = field(default_factory=queue.SimpleQueue, init=False)
    _waiting: deque[Any] = field(default_factory=deque, init=False)
    _closed: bool = field(default=False, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def issue(self, samples: Sequence[Any]) -> None:
        self._issued.put(samples)

    def close(self) -> None:
        self._issued.put(None)
        self._thread.join()

    def _work(self) -> None:
        while self._take(None):
            end = time.perf_counter() + self.batching.window_ms / 1e3
            while len(self._waiting) < self.batching.max_batch_size and not self._closed:
                if not self._take(max(0.0, end - time.perf_counter())):
                    break
            size = min(len(self._waiting), self.batching.max_batch_size)
            self._give([self._waiting.popleft() for _ in range(size)])

    def _take(self, seconds: float | None) -> bool:
        """Wait so long for issued samples; None: until some are waiting or the queue was closed. False without new
        ones, or at the end without waiting ones."""
        if seconds is None and (self._waiting or self._closed):
            return bool(self._waiting)
        try:
            samples = self._issued.get(seconds != 0, seconds)
        except queue.Empty:
            return False
        if samples is None:
            self._closed = True
            return False
        self._waiting.extend(samples)
        return True


def _refuse_other_answers(answers: Sequence[bytes], count: int) -> None:
    if len(answers) != count:
        raise LaunchError(f"answer() gave {len(answers)} answers to {count} samples.")
    for answer in answers:
        if not isinstance(answer, bytes):
            raise LaunchError(f"answer() gave an answer of type {type(answer).__name__}; give bytes.")
