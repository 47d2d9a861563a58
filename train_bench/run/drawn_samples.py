"""Samples of a generative model, drawn once the clock has stopped and written for the report page."""

from __future__ import annotations

import base64
import contextlib
import math
from typing import TYPE_CHECKING, Any, cast

from train_bench.core import files
from train_bench.core.job import Job
from train_bench.errors import WriteError
from train_bench.parallel import Parallel
from train_bench.task import DrawsSamples, SampleSheet, Task

if TYPE_CHECKING:
    import numpy as np


def write_samples(task: Task, job: Job, parallel: Parallel) -> None:
    """Called by every rank. Writes `job.samples_file`: the sheet, or the `error` for which there is none; the result is
    written by then, and stays, also where the file cannot be written. Nothing for a task that draws no samples."""
    if not hasattr(task, "draw_samples"):
        return
    try:
        sheet = cast(DrawsSamples, task).draw_samples()
        content = None if sheet is None else as_json(sheet)
    except Exception as raised:
        content = {"error": f"{type(raised).__name__}: {raised}"}
    if content is not None and parallel.rank == 0:
        with contextlib.suppress(WriteError):
            files.write_json(job.samples_file, content)


def as_json(sheet: SampleSheet) -> dict[str, Any]:
    """Pixels in base64, by sample, row, column and channel."""
    return {
        "about": sheet.about,
        "rows": [
            {"label": label, "drawn": _pixels(drawn), "data": _pixels(data)}
            for label, (drawn, data) in sheet.rows.items()
        ],
        "measures": [
            {"name": name, "drawn": _finite(drawn), "data": _finite(data)}
            for name, (drawn, data) in sheet.measures.items()
        ],
    }


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
    shape = {"samples": samples, "rows": rows, "columns": columns}
    return shape | {"rgb": base64.b64encode(images.tobytes()).decode()}
