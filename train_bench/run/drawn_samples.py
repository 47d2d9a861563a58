"""Samples of a generative model, drawn once the clock has stopped and written for the report page."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from train_bench.core import files
from train_bench.core.job import LARGEST_SAMPLES_BYTES, LARGEST_SAMPLES_SIDE, Job
from train_bench.errors import WriteError
from train_bench.parallel import Parallel
from train_bench.run.rank_state import end_process
from train_bench.task import DrawsSamples, SampleSheet, Task

if TYPE_CHECKING:
    import numpy as np


POLL_SECONDS = 0.2
LARGEST_ERROR = 2000
"""Characters of an error."""


def write_samples(task: Task, job: Job, parallel: Parallel) -> None:
    """Called by every rank. Writes `job.samples_file`: the sheet, or the `error` for which there is none; the result is
    written by then, and stays, also where the file cannot be written. Nothing for a task that draws no samples.

    Ranks draw together. One that fails ends the processes of all, because others may wait for it within the network;
    nothing is left to do for any of them."""
    if not hasattr(task, "draw_samples"):
        return
    failed = job.ranks_folder / "drawing_failed"
    try:
        with _ended_by(failed) if parallel.size > 1 else contextlib.nullcontext():
            sheet = cast(DrawsSamples, task).draw_samples()
    except (Exception, SystemExit) as raised:
        if not failed.exists():  # else it is the absence of the rank that has failed
            _write(job, _error(raised, parallel))
        if parallel.size > 1:
            with contextlib.suppress(OSError):
                failed.touch()
            end_process()
        return
    if sheet is None or parallel.rank > 0:
        return
    try:
        _write(job, as_json(sheet))
    except Exception as raised:
        _write(job, _error(raised, parallel))


@contextlib.contextmanager
def _ended_by(failed: Path) -> Iterator[None]:
    """Context that ends this process once a rank has failed, wherever its main thread is."""
    over = threading.Event()
    watch = threading.Thread(target=_end_once, args=(failed, over), name="drawing", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _end_once(failed: Path, over: threading.Event) -> None:
    while not over.wait(POLL_SECONDS):
        if failed.exists():
            end_process()


def _error(raised: BaseException, parallel: Parallel) -> dict[str, Any]:
    where = f"rank {parallel.rank}: " if parallel.size > 1 else ""
    return {"error": f"{where}{type(raised).__name__}: {raised}"[:LARGEST_ERROR]}


def _write(job: Job, content: Mapping[str, Any]) -> None:
    size = len(json.dumps(content, indent=2))
    if size > LARGEST_SAMPLES_BYTES:
        raise ValueError(
            f"the samples have {size:,} bytes as JSON; allowed are {LARGEST_SAMPLES_BYTES:,}; draw fewer or smaller "
            "ones"
        )
    with contextlib.suppress(WriteError):
        files.write_json(job.samples_file, content)


def as_json(sheet: SampleSheet) -> dict[str, Any]:
    """Sheet for strict JSON: pixels in base64, by sample, row, column and channel. Raises `ValueError` for one that the
    page does not show."""
    return {
        "about": _text(sheet.about),
        "rows": [
            {"label": _text(label), "drawn": _pixels(drawn), "data": _pixels(data)}
            for label, (drawn, data) in sheet.rows.items()
        ],
        "measures": [
            {"name": _text(name), "drawn": _finite(drawn), "data": _finite(data)}
            for name, (drawn, data) in sheet.measures.items()
        ],
    }


def _text(text: object) -> str:
    if type(text) is not str:
        raise ValueError(f"{text!r:.80} is not a text; needed are texts for labels, names and sentences")
    return text


def _finite(figure: float) -> float:
    if not math.isfinite(figure):
        raise ValueError(f"a figure is {figure}; needed are finite ones")
    return float(figure)


def _pixels(images: np.ndarray) -> dict[str, Any]:
    samples, rows, columns, channels = images.shape
    if channels != 3 or images.dtype != "uint8":
        raise ValueError(
            f"images are {images.dtype} {images.shape}; needed is uint8 (samples, rows, columns, 3)"
        )
    if not all(0 < side <= LARGEST_SAMPLES_SIDE for side in (samples, rows, columns)):
        raise ValueError(
            f"images are {images.shape}; allowed are 1 to {LARGEST_SAMPLES_SIDE} samples, rows and columns"
        )
    shape = {"samples": samples, "rows": rows, "columns": columns}
    return shape | {"rgb": base64.b64encode(images.tobytes()).decode()}
