"""Reader of Arrow's streaming format, as far as Hugging Face `datasets` writes it to disk: where in a file the values
of binary and 32-bit columns lie.

A stream is a sequence of messages, each

    int32 -1, int32 bytes of metadata, metadata, padded to 8 bytes; then the body

all little-endian. Metadata are a flatbuffer: a schema first, then record batches, whose columns are buffers at places
in the body (Arrow, "Columnar Format", "Serialization and Interprocess Communication"). No value is read, so that files
of terabytes take minutes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train_bench.errors import RequestError
from train_bench.references.parts.fingerprint import mapped

SCHEMA, RECORD_BATCH = 1, 3
INTEGER, BINARY, TEXT, LARGE_BINARY, LARGE_TEXT = 2, 4, 5, 19, 20
BUFFERS = {INTEGER: 2, BINARY: 3, TEXT: 3, LARGE_BINARY: 3, LARGE_TEXT: 3}
"""Kinds of columns that are read, and how many buffers each has: validity, places where values differ in length,
values."""


class Span(NamedTuple):
    """Places of a column's values in the file, in bytes: int64 (values,) first bytes and lengths."""

    first: np.ndarray
    length: np.ndarray


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a flatbuffer that lies in `data`."""

    data: memoryview
    at: int

    def place(self, field: int) -> int | None:
        """Place of a field's value; None where the table has none."""
        table = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        size = struct.unpack_from("<H", self.data, table)[0]
        entry = 4 + 2 * field
        offset = struct.unpack_from("<H", self.data, table + entry)[0] if entry < size else 0
        return self.at + offset if offset else None

    def number(self, field: int, kind: str, default: int = 0) -> int:
        place = self.place(field)
        return default if place is None else int(struct.unpack_from(f"<{kind}", self.data, place)[0])

    def below(self, field: int) -> _Table | None:
        place = self.place(field)
        return None if place is None else _Table(self.data, _target(self.data, place))

    def vector(self, field: int) -> tuple[int, int]:
        """First place and number of elements."""
        place = self.place(field)
        if place is None:
            return 0, 0
        start = _target(self.data, place)
        return start + 4, int(struct.unpack_from("<I", self.data, start)[0])

    def text(self, field: int) -> str:
        first, size = self.vector(field)
        return bytes(self.data[first : first + size]).decode()


def _target(data: memoryview, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


class _Column(NamedTuple):
    name: str
    kind: int


def spans(path: Path, names: Sequence[str]) -> Iterator[Mapping[str, Span]]:
    """For each record batch of a file, where the values of the named columns lie. Raises `RequestError` for a file that
    is no such stream, is cut off, or lacks a column."""
    if path.stat().st_size == 0:
        raise _broken(path, "it is empty")
    try:
        yield from _spans(path, memoryview(mapped(path).data), names)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise _broken(path, "its metadata are damaged") from error


def _spans(path: Path, data: memoryview, names: Sequence[str]) -> Iterator[Mapping[str, Span]]:
    columns: list[_Column] = []
    for message, body in _messages(path, data):
        kind, head = message.number(1, "B"), message.below(2)
        if head is None:
            raise _broken(path, "a message has no content")
        if kind == SCHEMA:
            columns = _columns(head)
            lacking = [name for name in names if name not in {one.name for one in columns}]
            other = [one for one in columns if one.kind not in BUFFERS]
            if lacking or other:
                raise RequestError(
                    f"{path} has the columns {', '.join(one.name for one in columns)}; needed are "
                    f"{', '.join(names)}, and only columns of bytes, text and whole numbers are read. It is another "
                    "data set, or was saved by another program."
                )
        elif kind == RECORD_BATCH:
            if head.place(3) is not None:
                raise _broken(path, "it is compressed, and only plain files can be mapped")
            yield _of_batch(path, data, head, body, columns, names)
        else:
            raise _broken(path, f"it has a message of kind {kind}")


def _messages(path: Path, data: memoryview) -> Iterator[tuple[_Table, int]]:
    """Each message's metadata and the place of its body."""
    at = 0
    while at + 8 <= len(data):
        marker, size = struct.unpack_from("<ii", data, at)
        if marker != -1:
            raise _broken(path, "it does not begin with the mark of a message")
        if size == 0:
            return
        message = _Table(data[at + 8 : at + 8 + size], _target(data[at + 8 : at + 8 + size], 0))
        body = at + 8 + size
        at = body + message.number(3, "q")
        if size < 0 or at > len(data) or at < body:
            raise _broken(path, f"it has {len(data)} bytes, and a message ends at {at}")
        yield message, body


def _columns(schema: _Table) -> list[_Column]:
    first, count = schema.vector(1)
    found = []
    for number in range(count):
        field = _Table(schema.data, _target(schema.data, first + 4 * number))
        kind, described = field.number(2, "B"), field.below(3)
        width = 32 if described is None or kind != INTEGER else described.number(0, "i")
        nested = field.vector(5)[1] > 0
        found.append(_Column(field.text(0), 0 if nested or width != 32 else kind))
    return found


def _of_batch(
    path: Path,
    data: memoryview,
    head: _Table,
    body: int,
    columns: Sequence[_Column],
    names: Sequence[str],
) -> Mapping[str, Span]:
    rows, nodes, buffers = head.number(0, "q"), head.vector(1), head.vector(2)
    if nodes[1] != len(columns) or buffers[1] != sum(BUFFERS[one.kind] for one in columns):
        raise _broken(path, "a batch has other columns than its schema")
    found, place = {}, buffers[0]
    for number, column in enumerate(columns):
        _, nulls = struct.unpack_from("<qq", head.data, nodes[0] + 16 * number)
        of_column = [
            struct.unpack_from("<qq", head.data, place + 16 * one) for one in range(BUFFERS[column.kind])
        ]
        place += 16 * BUFFERS[column.kind]
        if column.name not in names:
            continue
        if nulls:
            raise _broken(path, f"{nulls} values of {column.name} are missing")
        values = body + of_column[-1][0]
        if column.kind == INTEGER:
            found[column.name] = Span(values + 4 * np.arange(rows), np.full(rows, 4))
            continue
        kind = "<i8" if column.kind in (LARGE_BINARY, LARGE_TEXT) else "<i4"
        ends = np.frombuffer(data, kind, rows + 1, body + of_column[1][0]).astype(np.int64)
        if (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] > of_column[-1][1]:
            raise _broken(path, f"values of {column.name} lie outside their buffer")
        found[column.name] = Span(values + ends[:-1], np.diff(ends))
    return found


def _broken(path: Path, why: str) -> RequestError:
    return RequestError(
        f"{path} is not a data set saved by Hugging Face datasets: {why}. Fetch it again, and prepare again."
    )
