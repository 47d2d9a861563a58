"""MLLOG events of a result: typed methods that write log lines. The only importer of mlperf_logging."""

from __future__ import annotations

import errno
import hashlib
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
from train_bench.task import DataFacts

ROOT = Path(__file__).resolve().parents[2]

SPEAKERS = {
    __file__,
    *(str(ROOT / "train_bench" / file) for file in ("run/clock.py", "own_trainer/benchmark.py")),
}
"""Files whose lines are not named as the place where something was said: their callers are."""


def wall_clock_ms(not_before_ms: int = 0) -> Callable[[], int]:
    """Monotonic clock in milliseconds since the epoch: one reading of the wall clock, then the monotonic clock."""
    wall, start = max(time.time(), not_before_ms / 1000), time.monotonic()
    return lambda: int((wall + time.monotonic() - start) * 1000)


def claim(path: Path) -> None:
    """Claim the log for one process: the one that creates the file. Raises `LaunchError` for every other."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError as error:
        raise LaunchError(f"Another process writes {path}; a run has one rank 0.") from error
    except OSError as error:
        raise cannot_write(path, error) from error


class LogFileHandler(logging.Handler):
    """Unbuffered log file: every line reaches the disk, or the run ends."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self._digest = hashlib.sha256()
        self._file = path.open("ab", buffering=0)  # from round 6.1 on, program output is interleaved

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.getMessage()}\n".encode()
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._digest.update(line)

    @property
    def digest(self) -> str:
        """The sha256 of the lines so far, in hexadecimal."""
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()


class Log:
    """The result of one run, line by line. Only rank 0 has a file; on the others nothing is written.

    Lines give as their source the calling line: of `timed_run.py`, or of the program that brought its own trainer.
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
            # The first line of a file reads source text to find its caller; do that before the clock.
            self._mllog.logger.disabled = True
            self._point("warm_up", None)
            self._mllog.logger.disabled = False

    @property
    def digest(self) -> str | None:
        """The sha256 of the lines so far, in hexadecimal; None where nothing is written."""
        return None if self._witness is None else self._witness.digest

    def close(self) -> None:
        """Close the file."""
        if self._witness is not None:
            self._witness.close()

    def cache_clear(self, dropped: bool) -> None:
        """Record that the caches were dropped, or not."""
        self._point(constants.CACHE_CLEAR, dropped)

    def announce(self, values: Mapping[str, Any], *, seed: int) -> None:
        """Settings fixed before the run, by mllog key; None is not logged."""
        self.values(values)
        self._point(constants.SEED, seed)

    def values(self, values: Mapping[str, Any]) -> None:
        """Values fixed before the run, by mllog key; None is not logged."""
        for key, value in values.items():
            if value is not None:
                self._point(key, value)

    def init_start(self) -> None:
        """Start of model construction; not timed."""
        self._start(constants.INIT_START)

    def initialized(self, tensors: Sequence[str]) -> None:
        """One line per initialised tensor."""
        for tensor in tensors:
            self._point(constants.WEIGHTS_INITIALIZATION, None, {"tensor": tensor})

    def init_stop(self) -> None:
        """End of model construction and warm-up; no data were touched."""
        self._end(constants.INIT_STOP)

    def run_start(self) -> None:
        """Start of the clock."""
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
        """Samples consumed by training, for rules that define `train_samples` as that instead of a size (BERT)."""
        self._point(constants.TRAIN_SAMPLES, samples)

    def block_start(self, mark: Mark) -> None:
        """Start of a block of training up to the next evaluation."""
        epochs = {
            constants.FIRST_EPOCH_NUM: _tidy(mark.first_epoch_num),
            constants.EPOCH_COUNT: _tidy(mark.epoch_count),
        }
        self._start(constants.BLOCK_START, epochs)

    def block_stop(self, mark: Mark) -> None:
        """End of the block."""
        self._end(constants.BLOCK_STOP, {constants.FIRST_EPOCH_NUM: _tidy(mark.first_epoch_num)})

    def extras(self, mark: Mark, progress: Progress) -> None:
        """Further keys that the rules require for a block of this benchmark."""
        for key, value in progress.extras.items():
            self._point(key, value, _position(mark))

    def eval_start(self, mark: Mark) -> None:
        """Start of an evaluation."""
        self._start(constants.EVAL_START, _position(mark))

    def eval_stop(self, mark: Mark) -> None:
        """End of the evaluation."""
        self._end(constants.EVAL_STOP, _position(mark))

    def accuracy(self, mark: Mark, quality: Quality) -> None:
        """Quality of an evaluation."""
        self._point(constants.EVAL_ACCURACY, quality.logged, _position(mark))

    def checkpoint_start(self, mark: Mark) -> None:
        """Start of a checkpoint, on the clock."""
        self._start("checkpoint_start", {constants.EPOCH_NUM: _tidy(mark.epoch_num)})

    def checkpoint_stop(self, mark: Mark) -> None:
        """End of the checkpoint, which is complete."""
        self._end("checkpoint_stop", {constants.EPOCH_NUM: _tidy(mark.epoch_num)})

    def run_failed(self, failure: Mapping[str, Any]) -> None:
        """Failure of this run's earlier processes; the clock has been running since."""
        self._point("run_failed", failure)

    def run_restored(self, progress: Mapping[str, Any]) -> None:
        """Restart after so many `evaluations` and `samples`; later work is lost."""
        self._point("run_restored", progress)

    def run_stop(self, status: str) -> None:
        """End of the clock: `success`, or `aborted`."""
        self._end(constants.RUN_STOP, {constants.STATUS: status})

    def processor_wait(self, seen: Mapping[str, Any] | None) -> None:
        """CPU wait time of the ranks, see `processors.gather`; None if the system does not report it."""
        self._point("processor_wait", seen)

    def peak_memory(self, seen: Mapping[str, Any] | None) -> None:
        """Peak memory by rank, see `memory.gather`."""
        self._point("peak_memory", seen)

    def data_wait(self, seen: Mapping[str, Any] | None) -> None:
        """Waits for data by rank, see `data_waits.gather`; None if a task does not count them."""
        self._point("data_wait", seen)

    def replicas(self, seen: Mapping[str, Any]) -> None:
        """Digest of the ranks' models and their equality, see `replicas.compare`."""
        self._point("replicas", seen)

    def order(self, seen: Mapping[str, Any] | None) -> None:
        """Samples that all ranks have trained and evaluated on, see `order.gather`."""
        self._point("order_fingerprint", seen)

    def learning_rates(self, seen: Mapping[str, Any] | None) -> None:
        """Learning rates of training, see `rates.told_by`; None if the task does not report them."""
        self._point("learning_rates", seen)

    def loaded_code(self, seen: Mapping[str, Any] | None) -> None:
        """Code of the ranks that no digest covers, see `loaded_code.describe`."""
        self._point("loaded_code", seen)

    def kept_weights(self, seen: Mapping[str, Any] | None) -> None:
        """Files of the kept weights, see `weights.write_weights`."""
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
    """Position of an evaluation."""
    position = _tidy(mark.epoch_num)
    names = (constants.EPOCH_NUM, constants.SAMPLES_COUNT)[: 1 + mark.samples_count]
    return dict.fromkeys(names, position)


def _offset() -> int:
    """Number of calls between the caller and mllog, as `stack_offset` counts them: 1 is the caller of this."""
    frame, offset = sys._getframe(1), 1
    while frame.f_code.co_filename in SPEAKERS and frame.f_back is not None:
        frame, offset = frame.f_back, offset + 1
    return offset


def _tidy(number: float) -> float:
    """Whole numbers as integers, as epochs are counted."""
    return int(number) if number == int(number) else number
