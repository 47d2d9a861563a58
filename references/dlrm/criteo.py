"""Criteo click logs of 24 days: text lines to numbered, shuffled records, in bounded memory.

Three passes, each of which continues where it was interrupted:

1. Every day is read once. Its records are written with categories modulo `max_index`, and which values
   occurred is noted (one bit each).
2. Values that occurred on any day are numbered from 0 in their order. Every training day is distributed at random to
   buckets; the first half of the last day becomes the evaluation set as it is.
3. Bucket after bucket is permuted in memory and appended, which shuffles all training days uniformly (Rao;
   Bacher et al. 2018, "MergeShuffle", section 1).

A day needs its own size in records on disk until it is distributed, a bucket until it is appended; so about twice the
training set at the worst.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from train_bench.core import files
from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError, WriteError
from train_bench.references.dlrm.config import Config
from train_bench.references.dlrm.lines import FIELDS, parse
from train_bench.references.parts import prepared
from train_bench.references.parts.recommendation import records

DAYS = 24
SCRATCH = "scratch"
CHUNK = 1 << 24
"""Bytes of text that are parsed at once."""

LONGEST_LINE = 1 << 10
"""Bytes; a record has at most 390."""

BLOCK = 1 << 18
"""Records that are handled at once."""

BUCKET = 1 << 22
"""Records of a bucket, about: 640 MiB, which are held twice to be permuted."""

CATEGORIES = 26
FIRST_CATEGORY = FIELDS - CATEGORIES
SHUFFLE_SEED = 0


def pack(config: Config, folder: Path, source: Path) -> dict[str, Any]:
    """Make `train.bin` and `val.bin` of the files `day_0` to `day_23`, compressed or not."""
    if len(config.model.table_rows) != CATEGORIES or 1 + config.model.dense_features != FIRST_CATEGORY:
        raise RequestError(
            f"Criteo has 13 dense and {CATEGORIES} categorical features; the model is for "
            f"{config.model.dense_features} and {len(config.model.table_rows)}."
        )
    days = [_day_file(source, day) for day in range(DAYS)]
    try:
        scratch = prepared.scratch_folder(folder, SCRATCH)
        counts = [_read_day(path, scratch, day, config) for day, path in enumerate(bar(days, "days read"))]
        numbers = _number(config, scratch)
        sizes = _deal(scratch, counts[:-1], numbers)
        return {
            "train": _append(config, folder, scratch, sizes),
            "val": records.write_split(
                folder, "val", _numbered(scratch, DAYS - 1, -(-counts[-1] // 2), numbers), config.model
            ),
        }
    except OSError as error:
        raise WriteError(
            f"{error.filename or folder} cannot be read or written: {error.strerror or error}. What is finished is "
            f"kept; fix that and prepare again to continue."
        ) from error


def clean(folder: Path) -> None:
    """Remove temporary files of the preparation."""
    prepared.remove_scratch(folder, SCRATCH)


def _day_file(source: Path, day: int) -> Path:
    for name in (f"day_{day}", f"day_{day}.gz"):
        if (source / name).is_file():
            return source / name
    raise RequestError(
        f"day_{day} is not in {source}, compressed or not. Fetch the {DAYS} files day_0 to day_{DAYS - 1} of Criteo's "
        f"1 TB click logs, whose terms have to be accepted, then prepare again."
    )


def _read_day(path: Path, scratch: Path, day: int, config: Config) -> int:
    """Write a day's records and the bits of its values; the number of its records."""
    note = scratch / f"day_{day}.json"
    if note.exists():
        return cast(int, files.read_json(note)["samples"])
    max_index = config.data.max_index
    most = (config.train_samples or 0) + 2 * (config.eval_samples or 0)
    seen = np.zeros((CATEGORIES, max_index), dtype=bool)
    samples = 0
    with (scratch / f"day_{day}.bin").open("wb") as file:
        for text in _whole_lines(path):
            block = parse(text, str(path), samples, max_index)
            for category in range(CATEGORIES):
                seen[category, block[:, FIRST_CATEGORY + category]] = True
            file.write(block.astype(records.DTYPE, copy=False).tobytes())
            samples += len(block)
            if samples > most:
                raise RequestError(
                    f"{path} has more records than all days of {config.benchmark} together, {most}. Fetch it again."
                )
    if samples < 2:
        raise RequestError(f"{path} has {samples} records; a day has millions. Fetch it again.")
    np.save(scratch / f"day_{day}_seen.npy", np.packbits(seen, axis=1))
    files.write_json(note, {"samples": samples})
    return samples


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Pieces of the file that end with a line."""
    rest, lines = b"", 0
    with (
        files.opened(path) as plain,
        gzip.GzipFile(fileobj=plain) if path.suffix == ".gz" else plain as file,
    ):
        while True:
            try:
                text = file.read(CHUNK)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise RequestError(
                    f"{path} is cut or corrupt behind record {lines}: {error}. Fetch it again."
                ) from error
            if not text:
                break
            whole, end, text = (rest + text).rpartition(b"\n")
            rest = text
            lines += whole.count(b"\n") + len(end)
            if len(rest) > LONGEST_LINE:
                raise RequestError(
                    f"{path} has no line end within {LONGEST_LINE} bytes behind record {lines}; a record is a line. "
                    f"Fetch it again."
                )
            if end:
                yield whole + end
    if rest:
        raise RequestError(
            f"{path} is cut: its last line, record {lines}, has no end ('{rest[:40].decode(errors='replace')}'). "
            f"Fetch it again."
        )


def _number(config: Config, scratch: Path) -> np.ndarray:
    """int32 (categories, max_index), on disk: the row of every value that occurred on any day."""
    path = scratch / "numbers.npy"
    max_index, rows = config.data.max_index, list(config.model.table_rows)
    part = path.with_name("numbers.part.npy")
    if not path.exists():
        part.unlink(missing_ok=True)
        table = np.lib.format.open_memmap(part, mode="w+", dtype=np.int32, shape=(CATEGORIES, max_index))
        sizes = []
        for category in bar(range(CATEGORIES), "features numbered"):
            bits = np.zeros(-(-max_index // 8), dtype=np.uint8)
            for day in range(DAYS):
                bits |= np.load(scratch / f"day_{day}_seen.npy", mmap_mode="r")[category]
            seen = np.unpackbits(bits, count=max_index)
            table[category] = np.cumsum(seen, dtype=np.int32) - 1
            sizes.append(int(seen.sum()))
        if sizes != rows:
            raise RequestError(
                f"The categories of all days have {sizes} values; {config.benchmark} has tables of {rows} rows. Fetch "
                f"the {DAYS} days again, or, for other data, set benchmark.model.table_rows to what was found."
            )
        table.flush()
        part.replace(path)
    return np.load(path, mmap_mode="r")


def _numbered(scratch: Path, day: int, samples: int, numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks of the first records of a day, with rows instead of values."""
    size = FIELDS * records.DTYPE.itemsize
    with (scratch / f"day_{day}.bin").open("rb") as file:
        for first in range(0, samples, BLOCK):
            count = min(BLOCK, samples - first)
            block = np.frombuffer(file.read(count * size), dtype=records.DTYPE).reshape(-1, FIELDS).copy()
            for category in range(CATEGORIES):
                column = block[:, FIRST_CATEGORY + category]
                column[:] = numbers[category][column]
            yield block


def _deal(scratch: Path, counts: list[int], numbers: np.ndarray) -> list[int]:
    """Distribute the training days over the buckets; the number of records in each."""
    note = scratch / "dealt.json"
    buckets = -(-sum(counts) // BUCKET)
    done: dict[str, Any] = {"days": 0, "sizes": [0] * buckets}
    if note.exists():
        done = files.read_json(note)
    size = FIELDS * records.DTYPE.itemsize
    sizes: list[int] = done["sizes"]
    for bucket in range(buckets):  # remains of an interrupted day
        path = _bucket(scratch, bucket)
        if not (scratch / "appended.json").exists():
            path.touch()
            with path.open("r+b") as file:
                file.truncate(sizes[bucket] * size)
    for day in bar(range(done["days"], len(counts)), "days dealt"):
        rng = np.random.default_rng([SHUFFLE_SEED, 0, day])
        for block in _numbered(scratch, day, counts[day], numbers):
            dealt = rng.integers(buckets, size=len(block))
            order = np.argsort(dealt, kind="stable")
            ends = np.cumsum(np.bincount(dealt, minlength=buckets))
            for bucket, piece in enumerate(np.split(block[order], ends[:-1])):
                if len(piece):
                    with _bucket(scratch, bucket).open("ab") as file:
                        file.write(piece.tobytes())
                    sizes[bucket] += len(piece)
        files.write_json(note, {"days": day + 1, "sizes": sizes})
        (scratch / f"day_{day}.bin").unlink()
    return sizes


def _append(config: Config, folder: Path, scratch: Path, sizes: list[int]) -> dict[str, Any]:
    """Permute each bucket and append it to `train.bin`; return the manifest entry of `records.write_split`."""
    note, path = scratch / "appended.json", records.split_path(folder, "train")
    done = files.read_json(note) if note.exists() else {"buckets": 0}
    size = FIELDS * records.DTYPE.itemsize
    if done["buckets"] == 0:
        path.touch()
    with path.open("r+b") as file:
        file.truncate(sum(sizes[: done["buckets"]]) * size)
        file.seek(0, 2)
        for bucket in bar(range(done["buckets"], len(sizes)), "buckets shuffled"):
            source = _bucket(scratch, bucket)
            block = np.fromfile(source, dtype=records.DTYPE).reshape(-1, FIELDS)
            if len(block) != sizes[bucket]:
                raise RequestError(
                    f"{source} has {len(block)} of {sizes[bucket]} records; remove {folder} and prepare again."
                )
            records.refuse_bad(block, config.model, str(source), 0)
            np.random.default_rng([SHUFFLE_SEED, 1, bucket]).permutation(block).tofile(file)
            file.flush()
            files.write_json(note, {"buckets": bucket + 1})
            source.unlink()
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while content := file.read(1 << 20):
            digest.update(content)
    return {"samples": sum(sizes), "bytes": sum(sizes) * size, "sha256": digest.hexdigest()}


def _bucket(scratch: Path, bucket: int) -> Path:
    return scratch / f"bucket_{bucket:05d}.bin"
