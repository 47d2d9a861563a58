"""Whether two sets are told apart by their files and by their content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from train_bench.references.parts import fingerprint as fingerprints
from train_bench.references.parts.fingerprint import fingerprint


@dataclass
class Numbers:
    """A set with a sample for each number."""

    numbers: list[int]
    name: str
    length: int = 8

    def __len__(self) -> int:
        return len(self.numbers)

    def files(self) -> list[Path]:
        return [Path(self.name)]

    def content(self, index: int) -> np.ndarray:
        return np.full(self.length, self.numbers[index], dtype=np.uint32).view(np.uint8)


def numbers(first: int, count: int, name: str) -> Numbers:
    return Numbers(list(range(first, first + count)), name)


def test_sets_that_differ_have_nothing_in_common() -> None:
    found = fingerprint(numbers(0, 50, "train"), numbers(50, 20, "val"), eval_left_out=3)
    assert (found.files_in_common, found.samples_in_common) == (0, 0)
    assert (found.train.samples, found.train.compared) == (50, 50)
    assert (found.evaluation.samples, found.evaluation.left_out) == (20, 3)
    assert found.train.digest != found.evaluation.digest


def test_the_same_files_and_copies_of_them_are_in_common() -> None:
    assert fingerprint(numbers(0, 50, "train"), numbers(50, 20, "train")).files_in_common == 1
    assert fingerprint(numbers(0, 50, "train"), numbers(40, 20, "val")).samples_in_common == 10


def test_the_digest_follows_content_and_order_not_where_it_lies() -> None:
    val = numbers(50, 20, "val")
    one = fingerprint(numbers(0, 5, "here"), val).train.digest
    assert one == fingerprint(numbers(0, 5, "there"), val).train.digest
    assert one != fingerprint(numbers(1, 5, "here"), val).train.digest
    assert one != fingerprint(Numbers([1, 0, 2, 3, 4], "here"), val).train.digest


@pytest.mark.parametrize("shift", [0, 7])
def test_of_a_large_set_a_part_is_compared_that_finds_a_copy(
    monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    monkeypatch.setattr(fingerprints, "WHOLE_SET", 100)
    monkeypatch.setattr(fingerprints, "SPREAD", 10)
    train = numbers(0, 1000, "train")
    copied = fingerprint(train, Numbers(train.numbers[shift : 300 + shift], "val"))
    assert copied.train.compared == copied.evaluation.compared == 10
    assert copied.samples_in_common == (10 if shift == 0 else 0)
    small = fingerprint(train, Numbers(train.numbers[:80], "val"))
    assert (small.evaluation.compared, small.samples_in_common) == (80, 10)


def test_long_samples_are_told_by_their_length_and_their_middle() -> None:
    one, other = (Numbers([1], name, length=3_000) for name in ("train", "val"))
    assert fingerprint(one, other).samples_in_common == 1
    assert fingerprint(one, Numbers([1], "val", length=3_001)).samples_in_common == 0

    class Changed(Numbers):
        def content(self, index: int) -> np.ndarray:
            content = super().content(index).copy()
            content[len(content) // 2] += 1
            return content

    assert fingerprint(one, Changed([1], "val", length=3_000)).samples_in_common == 0


def test_the_numbers_of_a_file_are_a_plain_array_that_is_read_when_it_is_looked_at(tmp_path: Path) -> None:
    """Slices of a memmap's own class take ten times as long."""
    file = tmp_path / "numbers.bin"
    file.write_bytes(np.arange(5, dtype="<i4").tobytes())
    found = fingerprints.mapped(file, "<i4")
    assert type(found) is np.ndarray and found.tolist() == [0, 1, 2, 3, 4]
    file.write_bytes(np.arange(5, 10, dtype="<i4").tobytes())
    assert found.tolist() == [5, 6, 7, 8, 9]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1
