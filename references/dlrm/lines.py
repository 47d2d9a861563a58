"""Parser of Criteo click log lines: label, 13 integers, 26 hexadecimal words, separated by tabs."""

from __future__ import annotations

import numpy as np

from train_bench.errors import RequestError

FIELDS = 40
FIRST_CATEGORY = 14
TAB, NEWLINE, MINUS = (ord(sign) for sign in "\t\n-")
LONGEST_INTEGER = 11
"""Signs of the longest integer, -2147483648."""

NONE = 255
DIGITS = np.full(256, NONE, dtype=np.uint8)
for _number, _sign in enumerate("0123456789abcdef"):
    DIGITS[ord(_sign)] = DIGITS[ord(_sign.upper())] = _number


def parse(text: bytes, where: str, first: int, max_index: int) -> np.ndarray:
    """int32 (records, 40) of whole lines: missing values and negative integers are 0, words are taken modulo
    `max_index`. Refuses anything else; `first` is the number of the first record in `where`."""
    signs = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero((signs == TAB) | (signs == NEWLINE))
    _refuse_other_numbers_of_fields(signs, ends, where, first)
    starts = np.concatenate([[0], ends[:-1] + 1])
    values, wrong = _decode(signs, starts, ends)
    wrong[:, 0] |= (values[:, 0] != 0) & (values[:, 0] != 1)
    wrong[:, 0] |= (starts == ends).reshape(-1, FIELDS)[:, 0]
    if wrong.any():
        record, field = (int(number) for number in np.argwhere(wrong)[0])
        at = record * FIELDS + field
        seen = text[int(starts[at]) : int(ends[at])][:40].decode(errors="replace")
        wanted = (
            "the label 0 or 1"
            if field == 0
            else "an integer"
            if field < FIRST_CATEGORY
            else "a hexadecimal word"
        )
        raise RequestError(
            f"Record {first + record} of {where} has '{seen}' as field {field + 1}, where {wanted} is needed. "
            f"Fetch the file again."
        )
    values[:, FIRST_CATEGORY:] %= max_index
    return np.maximum(values, 0).astype(np.int32)


def _refuse_other_numbers_of_fields(signs: np.ndarray, ends: np.ndarray, where: str, first: int) -> None:
    last = signs[ends] == NEWLINE
    fields = np.diff(np.flatnonzero(last), prepend=-1)
    wrong = np.flatnonzero(fields != FIELDS)
    if len(wrong):
        raise RequestError(
            f"Record {first + int(wrong[0])} of {where} has {int(fields[wrong[0]])} fields; {FIELDS} are needed. "
            f"Fetch the file again."
        )


def _decode(signs: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64 values (records, 40), and a mask of those that are not 32-bit numbers."""
    lengths = (ends - starts).reshape(-1, FIELDS)
    starts = starts.reshape(-1, FIELDS)
    base = np.where(np.arange(FIELDS) < FIRST_CATEGORY, 10, 16)
    negative = (signs[starts] == MINUS) & (base == 10) & (lengths > 1)
    values = np.zeros(lengths.shape, dtype=np.int64)
    wrong = lengths > np.where(base == 10, LONGEST_INTEGER, 8)
    for place in range(min(int(lengths.max()), LONGEST_INTEGER)):
        inside = lengths > place
        digit = DIGITS[signs[np.where(inside, starts + place, 0)]]
        inside &= ~(negative & (place == 0))
        wrong |= inside & (digit >= base)
        values = np.where(inside, values * base + digit, values)
    values = np.where(negative, -values, values)
    wrong |= (base == 10) & (np.abs(values) > np.iinfo(np.int32).max)
    return values, wrong
