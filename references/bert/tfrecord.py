"""TFRecord reader without TensorFlow.

A TFRecord file is a sequence of

    uint64 length, uint32 masked crc32c of these 8 bytes, the record, uint32 masked crc32c of the record

all little-endian. The records here are messages `tf.train.Example` in the encoding of protocol buffers: a
map from the names of features to lists of integers or floats.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import numpy as np

from train_bench.core import files
from train_bench.errors import RequestError

LONGEST_RECORD = 1 << 20
"""Bytes; examples have some thousand, and a length above it comes from a file that is something else."""

VARINT, LENGTH_DELIMITED = 0, 2
"""Wire types of a field: an integer in groups of 7 bits, and a count of bytes with that many bytes."""

INTEGERS, FLOATS = 3, 2
"""Fields of `tf.train.Feature`."""


class Malformed(Exception):
    """A record is not a `tf.train.Example`."""


def records(path: Path) -> Iterator[bytes]:
    """The records of a file, one in memory at a time. Raises `RequestError` with the number of the record where
    a file is cut or a checksum is wrong."""
    with files.opened(path) as file:
        number = 0
        while head := file.read(12):
            where = f"{path}, record {number}"
            if len(head) < 12 or _masked_crc(head[:8]) != int.from_bytes(head[8:], "little"):
                raise RequestError(
                    f"{where}: {_fault(head, 12)} in its length. Fetch or make the file again."
                )
            length = int.from_bytes(head[:8], "little")
            if length > LONGEST_RECORD:
                raise RequestError(
                    f"{where}: it claims {length} bytes; at most {LONGEST_RECORD} are allowed."
                )
            body = file.read(length + 4)
            if len(body) < length + 4 or _masked_crc(body[:-4]) != int.from_bytes(body[-4:], "little"):
                raise RequestError(f"{where}: {_fault(body, length + 4)}. Fetch or make the file again.")
            yield body[:-4]
            number += 1


def _fault(content: bytes, wanted: int) -> str:
    if len(content) < wanted:
        return f"the file ends after {len(content)} of {wanted} bytes"
    return "the checksum (crc32c) is wrong"


def _masked_crc(content: bytes) -> int:
    """The checksum as it is stored: rotated by 15 bits, plus a constant."""
    crc = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def features(record: bytes) -> dict[str, np.ndarray]:
    """Integers as int64 and floats as float32 arrays by name; features of bytes are left out. Raises
    `Malformed`."""
    lists = {}
    for number, message in _fields(record):
        if number == 1:
            for inner, entry in _fields(message):
                if inner == 1:
                    pair = dict(_fields(entry))
                    if 1 not in pair or 2 not in pair:
                        raise Malformed("an entry has no name or no value")
                    values = _values(pair[2])
                    if values is not None:
                        lists[pair[1].decode("utf-8", "replace")] = values
    return lists


def _values(feature: bytes) -> np.ndarray | None:
    for kind, content in _fields(feature):
        if kind == INTEGERS:
            return _integers(b"".join(part for field, part in _fields(content, integers=True) if field == 1))
        if kind == FLOATS:
            packed = b"".join(part for field, part in _fields(content) if field == 1)
            if len(packed) % 4:
                raise Malformed(f"a list of floats has {len(packed)} bytes")
            return np.frombuffer(packed, dtype="<f4")
    return None


def _fields(message: bytes, *, integers: bool = False) -> Iterator[tuple[int, bytes]]:
    """(number, content) of a message's fields. With `integers`, single integers in their encoding, too."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        start = at
        if key & 7 == LENGTH_DELIMITED:
            size, start = _varint(message, at)
            at = start + size
        elif key & 7 == VARINT and integers:
            _, at = _varint(message, at)
        else:
            raise Malformed(f"a field has the wire type {key & 7}")
        if at > len(message):
            raise Malformed("a field is longer than its message")
        yield key >> 3, message[start:at]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """An integer of 7 bits per byte, the lowest first, and where it ends."""
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise Malformed("an integer does not end")


def _integers(packed: bytes) -> np.ndarray:
    """int64: all integers of a packed list at once."""
    content = np.frombuffer(packed, dtype=np.uint8)
    if not content.size:
        return np.zeros(0, dtype=np.int64)
    ends = np.flatnonzero(content < 0x80)
    if not ends.size or ends[-1] != content.size - 1:
        raise Malformed("a list of integers does not end")
    starts = np.concatenate([[0], ends[:-1] + 1])
    places = np.arange(content.size) - np.repeat(starts, ends - starts + 1)
    if places.max() > 9:
        raise Malformed("an integer has more than 10 bytes")
    parts = (content & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.add.reduceat(parts, starts).view(np.int64)
