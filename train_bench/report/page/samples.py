"""Samples that a generative model has drawn after a run, beside samples of its data, as PNG images in the page.

The file is untrusted: of its pixels the images are made here, and everything else is text or a number.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.job import LARGEST_SAMPLES_BYTES, LARGEST_SAMPLES_SIDE, samples_file
from train_bench.errors import TrainBenchError

IMAGES_PER_LINE = 4
"""Images in a line."""

LONGEST_TEXT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Samples of one label, as data addresses of PNG images, and their number."""

    label: str
    drawn: str
    data: str
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples of a run for the page, with figures of the model's and of the data's by name; or the `error` for which
    there are none."""

    run: int
    about: str = ""
    rows: Sequence[Row] = ()
    measures: Sequence[tuple[str, float, float]] = ()
    error: str | None = None


def read(folder: Path, runs: Sequence[Mapping[str, Any]]) -> Samples | None:
    """Samples of the first run that has some, converged ones first; None where no run has any."""
    for run in sorted(runs, key=lambda run: not run["converged"]):
        path = samples_file(folder, run["index"])
        if path.is_file():
            try:
                return _samples(
                    run["index"], files.parse_json(files.read_bytes(path, largest=LARGEST_SAMPLES_BYTES))
                )
            except (TrainBenchError, OSError) as error:
                return Samples(run=run["index"], error=f"{path} cannot be read: {error}")
            except files.INVALID_CONTENT:
                return Samples(run=run["index"], error=f"{path} is damaged; no run writes it so.")
    return None


def _samples(run: int, content: Mapping[str, Any]) -> Samples:
    if content.get("error") is not None:
        return Samples(run=run, error=_text(content["error"]))
    return Samples(
        run=run,
        about=_text(content["about"]),
        rows=[
            Row(
                label=_text(row["label"]),
                drawn=_address(row["drawn"]),
                data=_address(row["data"]),
                samples=row["drawn"]["samples"],
            )
            for row in content["rows"]
        ],
        measures=[
            (_text(one["name"]), _number(one["drawn"]), _number(one["data"])) for one in content["measures"]
        ],
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value[:LONGEST_TEXT]


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _address(pixels: Mapping[str, Any]) -> str:
    """Data address of a PNG of all images of a label, `IMAGES_PER_LINE` in a line, transparent pixels between them."""
    samples, rows, columns = (pixels[side] for side in ("samples", "rows", "columns"))
    rgb = base64.b64decode(pixels["rgb"])
    sides_fit = all(0 < side <= LARGEST_SAMPLES_SIDE for side in (samples, rows, columns))
    if not sides_fit or len(rgb) != 3 * samples * rows * columns:
        raise ValueError(pixels)
    across = min(samples, IMAGES_PER_LINE)
    width, height = across * (columns + 1) - 1, -(-samples // across) * (rows + 1) - 1
    image = bytearray(4 * width * height)
    for number in range(samples * rows):
        sample, row = divmod(number, rows)
        line, place = divmod(sample, across)
        at = 4 * ((line * (rows + 1) + row) * width + place * (columns + 1))
        for channel in range(3):
            of_row = rgb[3 * columns * number + channel : 3 * columns * (number + 1) : 3]
            image[at + channel : at + 4 * columns : 4] = of_row
        image[at + 3 : at + 4 * columns : 4] = b"\xff" * columns
    return f"data:image/png;base64,{base64.b64encode(_png(width, height, bytes(image))).decode()}"


def _png(width: int, height: int, rgba: bytes) -> bytes:
    """PNG of 8-bit colours with transparency (PNG, third edition, section 5)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + rgba[4 * width * row : 4 * width * (row + 1)] for row in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )
