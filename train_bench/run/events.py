"""The words of a result: typed verbs that become mllog lines. The only importer of mlperf_logging."""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlperf_logging.mllog import constants
from mlperf_logging.mllog.mllog import MLLogger

from train_bench.core.files import cannot_write
from train_bench.core.job import KEPT_WEIGHTS
from train_bench.errors import LaunchError
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.run import clock
from train_bench.task import DataFacts

ROOT = Path(__file__).resolve().parents[2]

SPEAKERS = {__file__, clock.__file__, str(ROOT / "train_bench/own_trainer/benchmark.py")}
"""Files whose lines are not named as the place where something was said: their callers are."""


def wall_clock_ms(not_before_ms: int = 0) -> Callable[[], int]:
    """A clock in milliseconds since the epoch that never steps back: one reading of the wall clock,
    then the monotonic clock."""
    wall, start = max(time.time(), not_before_ms / 1000), time.monotonic()
    return lambda: int((wall + time.monotonic() - start) * 1000)


def claim(path: Path) -> None:
    """Only one process ever writes a log: the one that makes the file. Raises `LaunchError` for every other."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError as error:
        raise LaunchError(f"Another process writes {path}; a run has one rank 0.") from error
    except OSError as error:
        raise cannot_write(path, error) from error


class LogFileHandler(logging.Handler):
    """A log file without a buffer: a line is on its way to the disk or the run ends."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self._file = path.open("ab", buffering=0)  # from round 6.1 on, the output of a program comes between

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.getMessage()}\n".encode()
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def close(self) -> None:
        self._file.close()
        super().close()


class Log:
    """The result of one run, line by line. Only rank 0 has a file; on the others nothing is written.

    Lines name as their place the line that spoke: of `timed_run.py`, or of the program that brought its own trainer.
    """

    def __init__(self, path: Path | None, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._mllog: MLLogger | None = None
        self._witness: LogFileHandler | None = None
        if path is not None:
            self._witness = LogFileHandler(path)
            logger = logging.Logger("train_bench.result", logging.INFO)
            logger.addHandler(self._witness)
            self._mllog = MLLogger(logger, root_dir=re.escape(str(ROOT)))
            # The first line of a file reads source text to name its caller; do that before the clock.
            self._mllog.logger.disabled = True
            self._point("warm_up", None)
            self._mllog.logger.disabled = False

    def close(self) -> None:
        """Close the file."""
        if self._witness is not None:
            self._witness.close()

    def cache_clear(self, dropped: bool) -> None:
        """True if the caches were really dropped."""
        self._point(constants.CACHE_CLEAR, dropped)

    def announce(self, values: Mapping[str, Any], *, seed: int) -> None:
        """Everything that was decided before the run, by mllog key; None is not logged."""
        self.values(values)
        self._point(constants.SEED, seed)

    def values(self, values: Mapping[str, Any]) -> None:
        """Values that were decided before the run, by mllog key; None is not logged."""
        for key, value in values.items():
            if value is not None:
                self._point(key, value)

    def init_start(self) -> None:
        """Model construction begins; not timed."""
        self._start(constants.INIT_START)

    def initialized(self, tensors: Sequence[str]) -> None:
        """One line per initialised tensor."""
        for tensor in tensors:
            self._point(constants.WEIGHTS_INITIALIZATION, None, {"tensor": tensor})

    def init_stop(self) -> None:
        """Everything is built and warm; no data were touched."""
        self._end(constants.INIT_STOP)

    def run_start(self) -> None:
        """The clock starts."""
        self._start(constants.RUN_START)

    def data(self, facts: DataFacts) -> None:
        """Sizes of the data sets, where they are known, and the fingerprint of their content; None where there are
        no sets."""
        self.sizes(facts.train_samples, facts.eval_samples)
        self._point("data_fingerprint", None if facts.fingerprint is None else asdict(facts.fingerprint))

    def sizes(self, train_samples: int | None, eval_samples: int | None) -> None:
        """Sizes of the data sets, where they are known."""
        self.values({constants.TRAIN_SAMPLES: train_samples, constants.EVAL_SAMPLES: eval_samples})

    def samples_used(self, samples: int) -> None:
        """How many samples training took, where `train_samples` means that instead of a size (BERT)."""
        self._point(constants.TRAIN_SAMPLES, samples)

    def block_start(self, mark: Mark) -> None:
        """A block of training up to the next evaluation begins."""
        epochs = {
            constants.FIRST_EPOCH_NUM: _tidy(mark.first_epoch_num),
            constants.EPOCH_COUNT: _tidy(mark.epoch_count),
        }
        self._start(constants.BLOCK_START, epochs)

    def block_stop(self, mark: Mark) -> None:
        """It has ended."""
        self._end(constants.BLOCK_STOP, {constants.FIRST_EPOCH_NUM: _tidy(mark.first_epoch_num)})

    def extras(self, mark: Mark, progress: Progress) -> None:
        """What the rules want logged for a block of this benchmark, beyond the block itself."""
        for key, value in progress.extras.items():
            self._point(key, value, _position(mark))

    def eval_start(self, mark: Mark) -> None:
        """An evaluation begins."""
        self._start(constants.EVAL_START, _position(mark))

    def eval_stop(self, mark: Mark) -> None:
        """It has ended."""
        self._end(constants.EVAL_STOP, _position(mark))

    def accuracy(self, mark: Mark, quality: Quality) -> None:
        """The quality that an evaluation found."""
        self._point(constants.EVAL_ACCURACY, quality.logged, _position(mark))

    def checkpoint_start(self, mark: Mark) -> None:
        """A checkpoint is being written, on the clock."""
        self._start("checkpoint_start", {constants.EPOCH_NUM: _tidy(mark.epoch_num)})

    def checkpoint_stop(self, mark: Mark) -> None:
        """It is whole."""
        self._end("checkpoint_stop", {constants.EPOCH_NUM: _tidy(mark.epoch_num)})

    def run_failed(self, failure: Mapping[str, Any]) -> None:
        """How the processes of this run died before; time has gone on since."""
        self._point("run_failed", failure)

    def run_restored(self, progress: Mapping[str, Any]) -> None:
        """Training goes on from here, after so many `evaluations` and `samples`; what came behind these is lost."""
        self._point("run_restored", progress)

    def run_stop(self, status: str) -> None:
        """Time stops: `success`, or `aborted`."""
        self._end(constants.RUN_STOP, {constants.STATUS: status})

    def processor_wait(self, seen: Mapping[str, Any] | None) -> None:
        """How long ranks waited for a processor, see `processors.gather`; None where the system does not tell."""
        self._point("processor_wait", seen)

    def replicas(self, seen: Mapping[str, Any]) -> None:
        """Which model the ranks hold and whether it is the same on all, see `replicas.compare`."""
        self._point("replicas", seen)

    def order(self, seen: Mapping[str, Any] | None) -> None:
        """Which samples all ranks have trained and evaluated on, see `order.gather`."""
        self._point("order_fingerprint", seen)

    def learning_rates(self, seen: Mapping[str, Any] | None) -> None:
        """With which learning rates training took its steps, see `rates.told_by`; None where the task does not tell."""
        self._point("learning_rates", seen)

    def kept_weights(self, seen: Mapping[str, Any] | None) -> None:
        """Which files hold the weights, see `weights.keep`."""
        self._point(KEPT_WEIGHTS, seen)

    def _point(self, key: str, value: Any, metadata: Mapping[str, Any] | None = None) -> None:
        if self._mllog is not None:
            self._mllog.event(key, value, metadata=metadata, time_ms=self._clock(), stack_offset=_offset())

    def _start(self, key: str, metadata: Mapping[str, Any] | None = None) -> None:
        if self._mllog is not None:
            self._mllog.start(key, metadata=metadata, time_ms=self._clock(), stack_offset=_offset())

    def _end(self, key: str, metadata: Mapping[str, Any] | None = None) -> None:
        if self._mllog is not None:
            self._mllog.end(key, metadata=metadata, time_ms=self._clock(), stack_offset=_offset())


def _position(mark: Mark) -> dict[str, float]:
    """Where an evaluation comes."""
    position = _tidy(mark.epoch_num)
    names = (constants.EPOCH_NUM, constants.SAMPLES_COUNT)[: 1 + mark.samples_count]
    return dict.fromkeys(names, position)


def _offset() -> int:
    """How many calls lie between whoever spoke and mllog, as `stack_offset` counts them: 1 is the caller of this."""
    frame, offset = sys._getframe(1), 1
    while frame.f_code.co_filename in SPEAKERS and frame.f_back is not None:
        frame, offset = frame.f_back, offset + 1
    return offset


def _tidy(number: float) -> float:
    """Whole numbers are logged as integers, as epochs are counted."""
    return int(number) if number == int(number) else number
