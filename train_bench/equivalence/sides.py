"""Sides of a comparison as they are typed, and the folders of their recordings."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from train_bench.core import shell_words
from train_bench.core.job import Precision
from train_bench.equivalence import compare, recording
from train_bench.errors import RequestError, UnknownName

UNITS = {
    Precision.fp32: 2.0**-23,
    Precision.tf32: 2.0**-10,
    Precision.fp16: 2.0**-10,
    Precision.bf16: 2.0**-7,
}
"""From one number of a precision to the next, as a share of it."""

OF_B = ("revision", "model", "names")
A, B = "a", "b"
TWINS = ("rounding", "threads")
DOUBLE = "double"
COARSE = "coarse rounding"

DRAWS = (1, 2, 3, 4)
"""Roundings with which both sides are recorded again where a difference is near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of `train-bench equivalent` besides the sides; the help of the verb describes each."""

    rungs: Sequence[str] = ()
    steps: int = 50
    seeds: int = 20
    synthetic: bool = False
    record: Path | None = None
    keep: Path | None = None

    def __post_init__(self) -> None:
        for name in self.rungs:
            if name not in compare.CHECKS:
                raise UnknownName(what="check", name=name, known=compare.CHECKS)

    def refuse(self) -> None:
        """Raise `RequestError` for settings with which nothing can be recorded."""
        if self.steps < 1 or self.seeds < 2:
            raise RequestError(
                f"--steps is {self.steps} and --seeds is {self.seeds}; allowed are 1 and 2 or more."
            )

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """Folder of the recordings; one that is gone afterwards, unless they are kept. Raises `RequestError` if they
        would stay among other files."""
        kept = self.record or self.keep
        if kept is None:
            with tempfile.TemporaryDirectory(prefix="train_bench_equivalent_") as temporary:
                yield Path(temporary)
            return
        if kept.is_dir() and any(kept.iterdir()):
            raise RequestError(f"The folder {kept} is not empty; choose another for the recordings.")
        yield kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side: overrides, or a folder with recordings; and the revision that it runs."""

    overrides: tuple[str, ...] = ()
    folder: Path | None = None
    revision: str | None = None
    model: str | None = None
    names: str | None = None


def campaigns_of(a: str, b: str | None) -> list[Path]:
    """Folders of the two finished campaigns, if the sides are such."""
    folders = [folder for side in (a, b) if side and (folder := folder_of(side))]
    finished = len(folders) == 2 and all(any(folder.glob("result_*.txt")) for folder in folders)
    return folders if finished else []


def sides_of(text_a: str, text_b: str | None) -> tuple[Side, Side | None]:
    """Both sides. Raises `RequestError` for what a side cannot be."""
    a, b = side_of(text_a), None if text_b is None else side_of(text_b)
    for name in OF_B:
        if getattr(a, name) is not None:
            raise RequestError(f"{name}= is for B; A runs the checkout as it is, and its reference.")
    if b is not None and (b.model is None) != (b.names is None):
        raise RequestError("model=MODULE:FUNCTION and names=FILE belong together; give both or none.")
    return a, b


def recorded_before(a: Side, b: Side | None) -> compare.Pair | None:
    """Both sides where they are recordings; None where A is to be recorded."""
    if a.folder is not None and b is not None and b.folder is not None:
        if a.folder.resolve() == b.folder.resolve():
            raise RequestError(f"{b.folder} is given twice; give the recordings of two sides.")
        pair = pair_of(a.folder, inner(b.folder), 0.0)
        recording.refuse_incomplete(pair.a, pair.b, b.folder)
        return pair
    if a.folder is not None:
        raise RequestError(
            "Where A is a folder with recordings, B has to be one, too: it is recorded together with A."
        )
    return None


def folder_of(text: str) -> Path | None:
    """The folder of that name, if there is one; overrides may be longer than a name can be."""
    path = Path(text).expanduser()
    return path if text and os.path.isdir(path) else None  # noqa: PTH112 `Path.is_dir` raises for long names


def side_of(text: str) -> Side:
    """One side, of overrides or of a folder."""
    folder = folder_of(text)
    if folder is not None:
        if not recording.is_recording(inner(folder)):
            raise RequestError(
                f"{folder} holds no recording; make one with train-bench equivalent A --record DIR."
            )
        return Side(folder=folder.resolve())
    words = shell_words.split(text, "overrides")
    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise RequestError(f"{wrong[0]} is neither an override NAME=VALUE nor a folder with recordings.")
    of_b = {name: value for name, _, value in (word.partition("=") for word in words) if name in OF_B}
    return Side(
        overrides=tuple(word for word in words if word.partition("=")[0] not in OF_B),
        revision=of_b.get("revision"),
        model=of_b.get("model"),
        names=of_b.get("names"),
    )


def pair_of(folder: Path, b: Path, unit: float) -> compare.Pair:
    """A of a folder with its twins, and B."""
    twins = _there(folder, (*TWINS, *(again(A, draw) for draw in DRAWS)))
    double = folder / DOUBLE
    return compare.Pair(
        a=recording.read(inner(folder)),
        b=recording.read(b),
        twins=twins,
        b_again=_there(folder, [again(B, draw) for draw in DRAWS]),
        coarse=_there(folder, (COARSE,)),
        double=recording.read(double) if recording.is_recording(double) else None,
        unit=unit or UNITS[Precision.fp32],
    )


def _there(folder: Path, names: Sequence[str]) -> list[recording.Recording]:
    return [recording.read(folder / name) for name in names if recording.is_recording(folder / name)]


def inner(folder: Path) -> Path:
    """The recording in a folder that may have those of its twins, too."""
    return folder / A if (folder / A).is_dir() else folder


def again(side: str, draw: int) -> str:
    """Name of a further recording of a side."""
    return f"{side} rounding {draw}"
