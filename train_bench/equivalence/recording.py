"""Merged recording of the ranks of one implementation. Reads data only."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from train_bench.core import files
from train_bench.errors import LogError

MOST_RANKS = 100_000

MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
"""Memory of this host."""

INVALID = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors raised by content of another type or size."""

START, LAST = "start", "last"
"""Moments of evaluation: before the first step, and after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Recording of one implementation, made by `record.py`.

    arrays  by name, in the order in which they came: `parameters/NAME`, `initial/NAME`, `inputs/STEP.BATCH/NUMBER`,
            `samples/STEP.BATCH/NUMBER` and `channels/STEP.BATCH/NUMBER` (features, or means of channels, by sample),
            `forward/STEP.BATCH/MODULE`, `gradients/STEP/NAME`, `step/STEP/NAME`, `state/STEP/NAME/KEY`,
            `statistics/STEP/NAME`, `schedule/KEY` (steps, groups), `optimizer/STEP/NAME`, `evaluation/WHEN/MODULE`,
            `order` and `evaluated` (numbers of samples)
    losses  of every step, the mean over its micro-batches; NaN for what is not finite
    facts   of rank 0: `shapes` and `operators` by name of an array, `groups`, `options`, `quality`
    """

    arrays: Mapping[str, np.ndarray]
    losses: tuple[float, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def names(self, kind: str) -> list[str]:
        """Arrays of a check, in order."""
        return [name for name in self.arrays if name.startswith(f"{kind}/")]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the tensor that an array was taken from."""
        return tuple(self.facts["shapes"].get(name, self.arrays[name].shape))


def is_recording(folder: Path) -> bool:
    """True if a folder holds recordings of ranks."""
    return (folder / "rank_0.npz").is_file()


def read(folder: Path) -> Recording:
    """Read and merge the recordings of all ranks in a folder."""
    try:
        return _merged(folder)
    except INVALID as error:
        raise LogError(
            f"{folder} is not a valid recording ({repr(error)[:200]}); record it again."
        ) from error


def _merged(folder: Path) -> Recording:
    first = _facts(folder, 0)
    if not 1 <= int(first["ranks"]) <= MOST_RANKS:
        raise ValueError(f"{first['ranks']} ranks")
    facts = [first, *(_facts(folder, rank) for rank in range(1, int(first["ranks"])))]
    every = [_arrays(folder, rank) for rank in range(len(facts))]
    arrays = {name: array for one in reversed(every) for name, array in one.items()}
    arrays = {name: arrays[name] for one in every for name in one}
    for kind in ("order", "evaluated"):
        if kind in arrays:
            arrays[kind] = _stream(every, kind)
            del arrays[f"{kind}_lengths"]
    for one in facts[1:]:
        for key in ("shapes", "operators"):
            first[key] = {**one[key], **first[key]}
        first["trained"] = list(dict.fromkeys((*first["trained"], *one["trained"])))
        for key in (
            "groups",
            "schedule_groups",
        ):  # each rank has recorded its own unshared parameters
            if key in first and key in one:
                both = zip(first[key], one[key], strict=True)
                first[key] = [list(dict.fromkeys((*names, *others))) for names, others in both]
    losses = np.array([one["losses"] for one in facts], dtype=np.float64).mean(axis=0)
    if losses.ndim != 1:
        raise ValueError("losses are not a list of numbers")
    _require(arrays, first)
    return Recording(arrays=arrays, losses=tuple(map(float, losses)), facts=first)


def _require(arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Raise `ValueError` for arrays or facts of another kind than recordings have."""
    if not all(array.dtype.kind in "biuf" for array in arrays.values()):
        raise ValueError("an array does not hold numbers")
    for key in ("shapes", "operators"):
        if not isinstance(facts[key], Mapping):
            raise ValueError(f"{key} is not an object")
    unknown = [name for name in facts["shapes"] if name not in arrays]
    if unknown:
        raise ValueError(f"the array {unknown[0]} is missing")


RECORDED = ("parameters", "forward", "gradients", "step")
"""Checks whose arrays every recording has."""


def refuse_incomplete(a: Recording, b: Recording, folder: Path) -> None:
    """Raise `LogError` where A has nothing to compare with, or B, in `folder`, lacks a part of it."""
    for name in RECORDED:
        arrays = [a.arrays[one] for one in a.names(name)]
        if not any(array.size for array in arrays):
            raise LogError(f"The recording of A has no values of {name}; record it again.")
        if not all(np.isfinite(array).all() for array in arrays):
            raise LogError(
                f"The recording of A has values of {name} that are not finite, so nothing can be compared with them; "
                "record training that does not diverge."
            )
    if not a.losses:
        raise LogError("The recording of A has no losses; record it again.")
    missing = None if b.facts.get("foreign") else _missing(a, b)
    if missing is not None:
        raise LogError(f"The recording in {folder} has no {missing}, and that of A has; record it again.")


def _missing(a: Recording, b: Recording) -> str | None:
    """All arrays of a check, a moment of evaluation, a metric or losses that A has and B lacks."""
    for name in (*RECORDED, "evaluation"):
        if a.names(name) and not b.names(name):
            return f"arrays of {name}"
    of_a, of_b = ({name.split("/")[1] for name in one.names("evaluation")} for one in (a, b))
    for moment in sorted(of_a - of_b):
        return f"evaluation at {moment}"
    for metric in sorted({*a.facts["quality"]} - {*b.facts["quality"]}):
        return f"quality {metric}"
    return f"losses of {len(a.losses)} steps" if len(b.losses) < len(a.losses) else None


def write_start(recording: Recording, file: Path) -> None:
    """Write the start weights, for another recording to start from."""
    weights = {name.partition("/")[2]: recording.arrays[name] for name in recording.names("parameters")}
    with file.open("wb") as opened:
        np.savez(opened, **weights)  # type: ignore[arg-type]


def _stream(every: list[dict[str, np.ndarray]], kind: str) -> np.ndarray:
    """Sample numbers in the order of the stream that ranks share: micro-batch k of rank 0, of rank 1 and so on."""
    for one in every:
        lengths = one[f"{kind}_lengths"]
        if (lengths < 0).any() or sum(map(int, lengths)) != len(one[kind]):
            raise ValueError(f"{kind} is not cut as {kind}_lengths says")
    parts = [np.split(one[kind], np.cumsum(one[f"{kind}_lengths"])[:-1]) for one in every]
    if kind == "evaluated":
        return np.concatenate([batch for part in parts for batch in part])
    none = np.empty(0, np.int64)
    return np.concatenate([batch for step in zip_longest(*parts, fillvalue=none) for batch in step])


def written(facts: Any) -> Any:
    """A rank's values for JSON: numbers that are not finite are null."""
    if isinstance(facts, Mapping):
        return {name: written(value) for name, value in facts.items()}
    if isinstance(facts, list | tuple):
        return [written(value) for value in facts]
    return None if isinstance(facts, float) and not math.isfinite(facts) else facts


def _facts(folder: Path, rank: int) -> dict[str, Any]:
    value = files.read_json(folder / f"rank_{rank}.json")
    if not isinstance(value, dict) or not {"ranks", "losses", "shapes", "operators"} <= value.keys():
        raise LogError(f"{folder / f'rank_{rank}.json'} is not a valid recording of a rank; record it again.")
    value["losses"] = [math.nan if loss is None else loss for loss in value["losses"]]
    quality = value.get("quality", {})
    value["quality"] = {metric: math.nan if one is None else one for metric, one in quality.items()}
    return value


def _refuse_inflated(file: BinaryIO) -> None:
    """Raise `ValueError` for an archive with an array of more bytes than its member has, and `MemoryError` for one that
    is larger than the memory of this host: a small file may name, or be inflated to, any size."""
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > MEMORY_BYTES:
            raise MemoryError
        for member in archive.infolist():
            with archive.open(member) as opened:
                old = np.lib.format.read_magic(opened) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(opened)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f"{member.filename} has fewer bytes than its array")
    file.seek(0)


def _arrays(folder: Path, rank: int) -> dict[str, np.ndarray]:
    path = folder / f"rank_{rank}.npz"
    try:
        with files.opened(path) as file:
            _refuse_inflated(file)
            with np.load(file, allow_pickle=False) as found:
                return dict(found)
    except MemoryError as error:
        raise LogError(
            f"{path} has arrays that are larger than the memory of this host; record fewer steps."
        ) from error
    except (EOFError, OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not a complete archive of arrays"
        raise LogError(f"{path} cannot be read: {what}. Record it again.") from error
