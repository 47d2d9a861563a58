"""THE CLOCK. The only file that starts or stops it; it fixes the order of a run's events.

The timed region is that of the rules (training_rules, "Run Results"): from the moment before any part
of the system touches the dataset to the moment at which the target is known to be reached,
evaluations included, without a pause. Building and warming up the model come before, on the init
budget. The clock counts blocks between evaluations, never batches: the loop is the trainer's own.

A reference uses it through `timed_run.py`, any other program through `train_bench.Benchmark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from train_bench.errors import LaunchError, OutOfOrder
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality, Target

if TYPE_CHECKING:
    from train_bench.run.events import Log

T = TypeVar("T")

SUCCESS, ABORTED = "success", "aborted"
"""Ends of a run, as the log says it."""

NEXT = {
    "nothing": ("init_start",),
    "init_start": ("init_stop",),
    "init_stop": ("run_start",),
    "run_start": ("block_start",),
    "block_start": ("eval_start",),
    "eval_start": ("report",),
    "report": ("block_start",),
    "run_stop": (),
}
"""Calls that may follow each call. Once the run is decided, `run_stop` follows `report`."""


class Ranks(Protocol):
    """Collectives that the clock needs; `Parallel` has them."""

    def from_rank_zero(self, value: T) -> T:
        """Rank 0's value, on every rank."""

    def barrier(self) -> None:
        """Wait until every rank is here and its device is idle."""


class Clock:
    """One timed run: its events, their order and its end. Every rank has one and makes the same calls; `log` writes on
    rank 0 alone.

    `whose` begins the sentence about an evaluation that cannot be compared with `target`, for example
    "The reference resnet". A call that is not due raises `OutOfOrder`.
    """

    def __init__(self, log: Log, ranks: Ranks, target: Target, *, whose: str) -> None:
        self.status = ABORTED
        self._log = log
        self._ranks = ranks
        self._target = target
        self._whose = whose
        self._said = "nothing"
        self._marks: list[Mark] = []
        self._mark: Mark | None = None
        self._diverged = False

    @property
    def is_running(self) -> bool:
        """True if the clock was started and not stopped."""
        return self._said not in ("nothing", "init_start", "init_stop", "run_stop")

    @property
    def is_decided(self) -> bool:
        """True if no further block is due: the target is reached, the run has diverged, or its schedule is over."""
        return self._said in ("report", "run_stop") and (
            self.status == SUCCESS or self._diverged or not self._marks
        )

    def init_start(self) -> None:
        """Start of model construction, once every rank is here; not timed."""
        self._say("init_start")
        self._ranks.barrier()
        self._log.init_start()

    def init_stop(self) -> None:
        """End of model construction and warm-up on every rank; no data were touched."""
        self._say("init_stop")
        self._ranks.barrier()
        self._log.init_stop()

    def run_start(self, marks: Sequence[Mark], read_counters: Callable[[], T]) -> T:
        """Start the clock once every rank is here with an idle device; quality is evaluated at the `marks`. No rank
        returns before rank 0 has logged the line, so that none touches data before it; this wait is timed. Returns what
        `read_counters` gave just before the clock, which it may not be charged to."""
        self.refuse_unless_due("run_start")
        self._ranks.barrier()
        counters = read_counters()
        self._say("run_start")
        self._marks = list(marks)
        self._log.run_start()
        self._ranks.barrier()
        return counters

    def go_on(self, marks: Sequence[Mark]) -> None:
        """Continue a run after a restart: the clock has been running since the first start; the `marks` remain."""
        self._said = "run_start"
        self._marks = list(marks)

    def blocks(self) -> Iterator[Mark]:
        """Blocks of training until the run is decided; each begins on iteration and has to be evaluated."""
        while not self.is_decided:
            yield self.block_start()

    def block_start(self) -> Mark:
        """Begin a block of training, up to the returned mark."""
        self._say("block_start")
        self._mark = self._marks.pop(0)
        self._log.block_start(self._mark)
        return self._mark

    def eval_start(self, progress: Progress) -> None:
        """End the block with this `progress` and begin its evaluation."""
        self._say("eval_start")
        mark = self._at()
        self._log.block_stop(mark)
        self._log.extras(mark, progress)
        self._log.eval_start(mark)

    def report(self, answer: Quality, call: str) -> bool:
        """Record the metrics of an evaluation, by `call`; rank 0's values count. Returns whether the run is decided.
        Raises `LaunchError` on every rank where they cannot be compared with the target."""
        self._say("report")
        quality = self._ranks.from_rank_zero(answer)
        reason = self._target.refuse(quality, call)
        if reason is not None:
            raise LaunchError(f"{self._whose} cannot be judged: {reason}")
        mark = self._at()
        self._log.accuracy(mark, quality)
        self._log.eval_stop(mark)
        if self._target.reached(quality):
            self.status = SUCCESS
        self._diverged = quality.diverged
        return self.is_decided

    def run_stop(self, train_samples: int | None = None) -> str:
        """Stop the clock; returns the status. `train_samples` is for rules that define it as the samples consumed."""
        self._say("run_stop")
        if train_samples is not None:
            self._log.samples_used(train_samples)
        self._log.run_stop(self.status)
        return self.status

    def abort(self) -> None:
        """Abort the run after an error: if the clock runs, it stops here, and the log gets `run_stop`."""
        if self.is_running:
            self._said, self.status = "run_stop", ABORTED
            self._log.run_stop(ABORTED)

    def _at(self) -> Mark:
        assert self._mark is not None, "a block begins before it is evaluated"
        return self._mark

    def refuse_unless_due(self, word: str) -> None:
        """Raise `OutOfOrder` if the event `word` is not allowed now."""
        due = ("run_stop",) if self._said == "report" and self.is_decided else NEXT[self._said]
        if word not in due:
            before = "before anything else" if self._said == "nothing" else f"after {self._said}()"
            raise OutOfOrder(
                f"{word}() was called {before}; allowed now: {' or '.join(f'{name}()' for name in due) or 'nothing'}."
            )

    def _say(self, word: str) -> None:
        self.refuse_unless_due(word)
        self._said = word
